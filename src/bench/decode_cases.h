#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "bench/op_cases.h"

namespace tightloop {

/// What decoding does beside attention: products of a few rows, the choice of a token, the continuations of
/// beams.
struct DecodeSizes {
  std::vector<std::pair<int64_t, int64_t>> weights;  // outputs x inputs
  std::vector<int64_t> rows;
  std::vector<int64_t> beams;  // translations followed
  int64_t vocabulary, translator_vocabulary;
  int64_t
      weight_bytes;  // of each shape, as many weights as these: a product must not find its own in a cache
};
/// Weights of Qwen3-0.6B: qkv, out, gate and up, down, head.
inline const DecodeSizes kDecodeSizesGpu{
    {{4096, 1024}, {1024, 2048}, {6144, 1024}, {1024, 3072}, {151936, 1024}},
    {1, 8, 16},
    {320, 2560},
    151936,
    10000,
    512 << 20};
inline const DecodeSizes kDecodeSizesCpu{
    {{2304, 768}, {768, 3072}, {50304, 768}}, {1, 4}, {320}, 50304, 10000, 128 << 20};
inline const DecodeSizes kDecodeSizesTest{{{24, 64}, {9, 256}}, {1, 3}, {6}, 100, 40, 1};

/// Forward alone: nothing of it has a gradient.
std::vector<OpCase> decode_cases(const DecodeSizes& sizes, at::ScalarType dtype, at::Device device);

}  // namespace tightloop
