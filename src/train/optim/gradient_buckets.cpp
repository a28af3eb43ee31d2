#include "train/optim/gradient_buckets.h"

#include <ATen/ops/zeros.h>

#include <map>

namespace tightloop {

namespace {

/// Where a bucket will be in the memory of its dtype, in values.
struct Extent {
  at::ScalarType dtype;
  int64_t begin = 0, end = 0;
  std::vector<size_t> parameters{};
};

int64_t aligned_size(const at::Tensor& tensor) {
  const int64_t step = GradientBuckets::kAlignment / tensor.element_size();
  return (tensor.numel() + step - 1) / step * step;
}

}  // namespace

GradientBuckets::GradientBuckets(const std::vector<at::Tensor>& like, int64_t bytes)
    : gradients_(like.size()) {
  std::vector<Extent> extents;
  std::map<at::ScalarType, size_t> open;  // the bucket of each dtype that still takes gradients
  std::vector<int64_t> begins(like.size());
  for (size_t i = like.size(); i-- > 0;) {
    TORCH_CHECK(like[i].is_contiguous(), "a parameter is not dense");
    const auto dtype = like[i].scalar_type();
    const int64_t size = aligned_size(like[i]);
    const auto found = open.find(dtype);
    if (found == open.end()) {
      open[dtype] = extents.size();
      extents.push_back({.dtype = dtype});
    } else if (const int64_t end = extents[found->second].end;
               (end - extents[found->second].begin + size) * like[i].element_size() > bytes) {
      found->second = extents.size();
      extents.push_back({.dtype = dtype, .begin = end, .end = end});
    }
    Extent& extent = extents[open[dtype]];
    begins[i] = extent.end;
    extent.end += size;
    extent.parameters.push_back(i);
  }
  std::map<at::ScalarType, at::Tensor> memory;
  for (const auto& [dtype, last] : open)
    memory[dtype] = at::zeros({extents[last].end}, like.front().options().dtype(dtype));
  for (auto& extent : extents) {
    const at::Tensor& all = memory[extent.dtype];
    for (const size_t i : extent.parameters)
      gradients_[i] = all.narrow(0, begins[i], like[i].numel()).view(like[i].sizes());
    buckets_.push_back(
        {std::move(extent.parameters), all.narrow(0, extent.begin, extent.end - extent.begin)});
  }
}

Pending GradientBuckets::Bucket::reduce(Processes& processes) const { return processes.all_reduce(flat); }

void GradientBuckets::reduce(Processes& processes) const {
  std::vector<Pending> sums;
  for (const auto& bucket : buckets_) sums.push_back(bucket.reduce(processes));
  for (auto& sum : sums) sum.wait();
}

}  // namespace tightloop
