#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

/// ops::PagedCall. q and out (tokens, heads, size) and the pages (pages, kv_heads, page, size) are dense; k
/// and v (tokens, kv_heads, size) have these strides, in elements. All begin at multiples of 16 bytes, as
/// heads and strides are; a page is a power of two of tokens.
struct PagedAttention {
  Dtype dtype;
  const void *q, *k, *v;
  int64_t k_step, k_head_step, v_step, v_head_step;
  void *key_pages, *value_pages;
  const int32_t *positions, *rows, *tables;
  void* out;
  int64_t tokens, heads, kv_heads, size, page, pages_of_row, window;
  int page_shift;  // a page has 1 << page_shift tokens
  float scale;
  bool apart;  // keys of one token may be shared out among several blocks, `splits` at most
  int64_t splits;
  float* partial;     // (tokens, heads, splits, size + 2), where splits > 1
  int32_t* counters;  // (tokens, heads) zeros, and zeros again afterwards, where splits > 1
};
/// How many blocks share the keys of a token, at most.
int paged_splits(bool apart, int64_t pages_of_row, int64_t page);
cudaError_t launch(const PagedAttention& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
