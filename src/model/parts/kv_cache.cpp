#include "model/parts/kv_cache.h"

#include <ATen/ops/empty.h>

namespace tightloop {

namespace {

constexpr int64_t kBlock = 32;

void grow(at::Tensor& held, const at::Tensor& like, int64_t used, int64_t needed) {
  if (held.defined() && held.size(2) >= needed) return;
  const int64_t capacity = (needed + kBlock - 1) / kBlock * kBlock;
  auto larger = at::empty({like.size(0), like.size(1), capacity, like.size(3)}, like.options());
  if (used > 0) larger.narrow(2, 0, used).copy_(held.narrow(2, 0, used));
  held = larger;
}

}  // namespace

std::pair<at::Tensor, at::Tensor> KvCache::append(int64_t layer, const at::Tensor& keys,
                                                  const at::Tensor& values) {
  auto& held = layers_[layer];
  const int64_t needed = length_ + keys.size(2);
  grow(held.keys, keys, length_, needed);
  grow(held.values, values, length_, needed);
  held.keys.narrow(2, length_, keys.size(2)).copy_(keys);
  held.values.narrow(2, length_, values.size(2)).copy_(values);
  return {held.keys.narrow(2, 0, needed), held.values.narrow(2, 0, needed)};
}

bool KvCache::truncate(int64_t length) {
  if (length >= length_) return true;
  const bool known = !last_embedding_.defined();
  length_ = known ? length : 0;
  if (!known) last_embedding_.reset();
  return known;
}

}  // namespace tightloop
