#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tightloop {

/// Keys and values of many sequences for every layer, in pages of kPage tokens that sequences take and give
/// back (ops::PagedCall). Made by the first pass, in its dtype; from then on they stay where they are.
class KvPages {
 public:
  static constexpr int64_t kPage = 16;

  KvPages(int64_t layers, int64_t pages) : layers_(static_cast<size_t>(layers)), pages_(pages) {}

  /// Keys and values (pages, K, kPage, S) of a layer; `like` (..., K, S) says what its keys are.
  std::pair<at::Tensor, at::Tensor> layer(int64_t layer, const at::Tensor& like);
  /// ops::PagedCall::counters, so many.
  at::Tensor counters(int64_t count, at::Device device);

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> layers_;
  int64_t pages_;
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

}  // namespace tightloop
