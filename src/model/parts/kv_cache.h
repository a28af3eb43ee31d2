#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tightloop {

/// Keys and values of the tokens seen so far, for every layer, in the compute dtype. Grows by blocks, so that
/// appending one token copies nothing in most steps.
class KvCache {
 public:
  explicit KvCache(int64_t layers) : layers_(layers) {}

  /// Tokens held before the current forward pass.
  int64_t length() const { return length_; }
  /// Appends keys and values (B, H, T, D) of the current pass and gives back all of them, (B, H, length() +
  /// T, D).
  std::pair<at::Tensor, at::Tensor> append(int64_t layer, const at::Tensor& keys, const at::Tensor& values);
  /// Ends a pass over T tokens.
  void advance(int64_t tokens) { length_ += tokens; }
  /// The normed embedding (B, 1, D) of the last token, for models that mix it into the next one (nanochat).
  const at::Tensor& last_embedding() const { return last_embedding_; }
  void set_last_embedding(const at::Tensor& embedding) { last_embedding_ = embedding; }
  /// Forgets all but the first tokens, to go on differently from there. False, and everything is forgotten,
  /// where the state of the last token cannot be had back.
  bool truncate(int64_t length);

 private:
  struct Layer {
    at::Tensor keys, values;  // (B, H, capacity, D)
  };
  std::vector<Layer> layers_;
  at::Tensor last_embedding_;
  int64_t length_ = 0;
};

}  // namespace tightloop
