#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace tightloop::ops {

/// N tokens of any number of sequences in one pass over a layer. Keys and values live in pages of a few
/// tokens; position p of a sequence is element p % page of page tables[row][p / page]. Integers are int32, on
/// the device of the queries, and nobody on the host reads them: a captured call serves all lengths.
struct PagedCall {
  at::Tensor q_NHS, k_NKS, v_NKS;     // H is a multiple of K
  at::Tensor key_pages, value_pages;  // (pages, K, tokens of a page, S), dense
  at::Tensor positions_N;             // of each token; below 0: there is none, for passes of a fixed size
  at::Tensor rows_N;                  // its sequence's row of `tables`
  at::Tensor tables;                  // (rows, most pages), dense
  /// N H zeros at least, and zeros again afterwards: blocks of a GPU that share a token's keys count
  /// themselves there. Undefined: none share them.
  at::Tensor counters{};
  int64_t window = 0;             // how many positions before its own a query sees; 0: all
  std::optional<double> scale{};  // 1 / sqrt(S) where it is not given
  bool apart = false;             // no two tokens are of one sequence
};

/// Writes the tokens' keys and values into the pages; then each token's queries attend to the positions
/// [max(0, p - window), p] of its sequence. Gives (N, H, S), dense; zeros where there is no token. Scores and
/// sums are fp32, rounded once. What a token gets does not depend on the other sequences, nor (but for
/// rounding) on how a sequence is cut into passes. No gradient.
at::Tensor paged_attention(const PagedCall& call);

/// The same in ordinary ATen.
at::Tensor paged_attention_plain(const PagedCall& call);

}  // namespace tightloop::ops
