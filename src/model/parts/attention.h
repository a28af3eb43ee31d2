#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "model/language_model.h"
#include "ops/attention/document_bounds.h"
#include "ops/pointwise/dropout.h"

namespace tightloop {

/// Where a layer drops elements.
enum class DropoutSite : int64_t { kEmbedding, kAttentionWeights, kAttention, kFeedForward, kCount };

/// How a layer attends, beyond what the whole pass decides.
struct AttentionOptions {
  std::optional<double> scale{};  // of the products; 1 / sqrt(head size) where it is not given
  int64_t window = 0;             // how many positions before its own a query sees; 0: all
  at::Tensor bias_BHTP{};         // added to the scores (ALiBi, say); undefined: none
  at::Tensor qkv_BTJS{};          // what q, k and v are parts of, where they are parts of one tensor
};

/// What the attention layers of one forward pass share: where its ids stand, and what each of them may see.
class AttentionScope {
 public:
  AttentionScope(const at::Tensor& ids_BT, const Pass& pass, double dropout);

  /// The position of the first id: the tokens that the cache holds already.
  int64_t past() const { return past_; }
  /// Positions are below it.
  int64_t end() const { return paged_ ? paged_->longest : past_ + length_; }
  /// (N) int32, where each token has a position of its own (Pass::paged); else undefined.
  at::Tensor positions() const { return paged_ ? paged_->positions_N : at::Tensor(); }
  ops::Dropout dropout(int64_t layer, DropoutSite site) const;
  /// Dropout of this pass: x itself unless it trains. The same elements for the same pass, layer and site.
  at::Tensor drop(const at::Tensor& x, int64_t layer, DropoutSite site) const;

  /// Softmax of queries (B, T, H, S) times keys (B, T, K, S), times values (B, T, K, S); H is a multiple of
  /// K. Gives (B, T, H * S). A query sees its own position and those before it, the cache's too, as far as
  /// the window and its document go.
  at::Tensor attend(const at::Tensor& q_BTHS, const at::Tensor& k_BTKS, const at::Tensor& v_BTKS,
                    int64_t layer, const AttentionOptions& options = {});

 private:
  at::Tensor mask(int64_t window);
  at::Tensor attend_paged(const at::Tensor& q_BTHS, const at::Tensor& k_BTKS, const at::Tensor& v_BTKS,
                          int64_t layer, const AttentionOptions& options);

  KvCache* cache_;
  const PagedTokens* paged_;
  at::Tensor documents_BT_, random_;
  std::shared_ptr<ops::DocumentBounds> bounds_;  // of the documents, where the pass has them
  int64_t past_, length_;
  double dropout_;
  at::Device device_;
  std::vector<std::pair<int64_t, at::Tensor>> masks_;  // by window: layers share them
};

/// (B, T) int64: positions that start again at 0 with every document.
at::Tensor positions_in_documents(const at::Tensor& documents_BT);
/// (B, T) bool: whether the position before belongs to the same document. False at the start of a row.
at::Tensor continues_document(const at::Tensor& documents_BT);

}  // namespace tightloop
