#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ops/attention/document_bounds.h"
#include "ops/pointwise/dropout.h"

namespace tightloop::ops {

/// One attention over keys and values, whoever computes it: softmax(scale * q k^T + bias) v.
struct AttentionCall {
  at::Tensor q_BHTS, k_BKPS, v_BKPS;  // H is a multiple of K; of P positions the last T are the queries' own
  /// Where q, k and v are parts of one tensor (B, T, H + 2 K, S): that one. A backend may then give its
  /// gradient as a whole, where those of the parts would be put together by a copy.
  at::Tensor qkv_BTJS{};
  bool causal = true;         // a query sees its own position and those before it; false: all
  int64_t window = 0;         // how many positions before its own a causal query sees; 0: all
  at::Tensor documents_BT{};  // a query sees its own document alone; undefined: there is one a row
  std::shared_ptr<DocumentBounds> bounds{};  // the same documents as stretches; null: nobody knows them
  at::Tensor bias_BHTP{};         // added to the scores, with leading sizes of 1 or whole; undefined: none
  std::optional<double> scale{};  // 1 / sqrt(S) where it is not given
  Dropout drop{};                 // of the weights
  bool growing = false;           // P grows from call to call: no plan is worth keeping for one length
  /// What a query may see as one bool tensor (T, P) or (B, 1, T, P). Layers of a pass share it, so it is made
  /// by whoever knows them, and only for a backend that asks.
  std::function<at::Tensor()> mask{};
};

/// Somebody who can compute some calls.
struct AttentionBackend {
  std::string name;
  std::function<bool(const AttentionCall&)> can;
  std::function<at::Tensor(const AttentionCall&)> run;        // (B, H, T, S)
  std::function<std::string(const AttentionCall&)> kernel{};  // which of several it takes, for people
};

/// Adds a backend that is asked before those there are: a plug-in's, at its start. attention_used() has it by
/// name once it has run.
void add_attention_backend(AttentionBackend backend);

/// By the first backend that can. Those of ATen are asked last, with ops.plain they alone: torch's attention
/// where nothing or only what follows is hidden, then with a mask, then step by step, which can do all.
at::Tensor attend(const AttentionCall& call);

/// While one lives, torch's attention does without cuDNN, which makes a plan for every new shape in some 40
/// ms: keys that grow by a token are a new shape each time.
class WithoutPlans {
 public:
  WithoutPlans();
  ~WithoutPlans();
  WithoutPlans(const WithoutPlans&) = delete;
  WithoutPlans& operator=(const WithoutPlans&) = delete;

 private:
  const bool before_;
};

}  // namespace tightloop::ops
