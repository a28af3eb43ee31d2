#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tightloop {

/// Keys and values of many sequences for every layer, in pages of a few tokens that sequences take and give
/// back (ops::PagedCall). Made by the first pass, in its dtype; from then on they stay where they are, but for
/// reserve().
class KvPages {
 public:
  static constexpr int64_t kPage = 16;

  KvPages(int64_t layers, int64_t pages, int64_t page = kPage)
      : layers_(static_cast<size_t>(layers)), pages_(pages), page_(page) {}

  int64_t pages() const { return pages_; }
  /// Makes room for so many pages; those there were keep their numbers and what is in them.
  void reserve(int64_t pages);
  /// Keys and values (pages, K, tokens of a page, S) of a layer; `like` (..., K, S) says what its keys are.
  std::pair<at::Tensor, at::Tensor> layer(int64_t layer, const at::Tensor& like);
  /// ops::PagedCall::counters, so many.
  at::Tensor counters(int64_t count, at::Device device);

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> layers_;
  int64_t pages_, page_;
  std::vector<at::Tensor> counters_;  // the largest last; captured graphs may use those before
};

/// The tokens of a pass over many sequences at once, whose ids are (N, 1). Tensors as in ops::PagedCall, on
/// the model's device.
struct PagedTokens {
  KvPages& pages;
  at::Tensor positions_N, rows_N, tables;  // int32
  at::Tensor
      previous_N1{};    // int64, for families with FamilyTraits::previous_token: the ids before; any at 0
  int64_t longest = 0;  // positions are below it
  bool apart = false;   // no two tokens are of one sequence
};

/// What each token's queries (N, H, S) see of its sequence in a layer, (N, H, S), once its keys and values
/// (N, K, S) are in the pages: ops::paged_attention.
at::Tensor attend_to_pages(const PagedTokens& tokens, int64_t layer, const at::Tensor& q_NHS,
                           const at::Tensor& k_NKS, const at::Tensor& v_NKS, int64_t window = 0,
                           std::optional<double> scale = {});

}  // namespace tightloop
