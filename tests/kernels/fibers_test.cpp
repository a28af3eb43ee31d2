// The stand-in for a GPU itself.
#include <gtest/gtest.h>

#include "ops/device.cuh"

namespace tightloop::ops::cuda {
namespace {

void add_neighbours(const float* in, float* out) {
  auto* shared = reinterpret_cast<float*>(dynamic_shared());
  shared[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] =
      shared[(threadIdx.x + 1) % blockDim.x] + static_cast<float>(blockIdx.x);
}

TEST(Fibers, WaitForTheirBlock) {
  std::vector<float> in(64), out(128);
  for (int i = 0; i < 64; ++i) in[i] = static_cast<float>(i);
  // Two blocks: one whose threads run from the first on, one from the last.
  ASSERT_EQ(start(add_neighbours, 2, 64, 64 * sizeof(float), nullptr, in.data(), out.data()), cudaSuccess);
  for (int i = 0; i < 128; ++i) EXPECT_EQ(out[i], static_cast<float>((i + 1) % 64 + i / 64));
}

void lose_a_thread() {
  if (threadIdx.x < 32)
    __syncthreads();
  else if (threadIdx.x != 40)
    __syncwarp();
  else
    __syncthreads();
}

TEST(Fibers, NoticeThatTheyWaitForEver) {
  EXPECT_THROW(start(lose_a_thread, 1, 64, 0, nullptr), std::logic_error);
}

void multiply(const float* a, const float* b, float* c) {
  const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  const auto pair = [](float low, float high) {
    const __half halves[] = {__float2half_rn(low), __float2half_rn(high)};
    uint32_t word;
    std::memcpy(&word, halves, sizeof word);
    return word;
  };
  const auto left = [&](int m, int k) { return pair(a[m * 16 + k], a[m * 16 + k + 1]); };
  const auto right = [&](int k, int n) { return pair(b[k * 8 + n], b[(k + 1) * 8 + n]); };
  const uint32_t fragment[] = {left(g, 2 * t), left(g + 8, 2 * t), left(g, 2 * t + 8),
                               left(g + 8, 2 * t + 8)};
  const uint32_t other[] = {right(2 * t, g), right(2 * t + 8, g)};
  float sums[4] = {1, 1, 1, 1};
  multiply_add<__half>(sums, fragment, other[0], other[1]);
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

TEST(Fibers, MultiplyAsAWarpDoes) {
  std::vector<float> a(256), b(128), c(128);
  for (int i = 0; i < 256; ++i) a[i] = static_cast<float>(i % 13) - 6;
  for (int i = 0; i < 128; ++i) b[i] = static_cast<float>(i % 7) - 3;
  ASSERT_EQ(start(multiply, 1, 32, 0, nullptr, a.data(), b.data(), c.data()), cudaSuccess);
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 8; ++n) {
      float wanted = 1;
      for (int k = 0; k < 16; ++k) wanted += a[m * 16 + k] * b[k * 8 + n];
      EXPECT_EQ(c[m * 8 + n], wanted);
    }
}

void load(const uint16_t* rows, uint32_t* straight, uint32_t* turned) {
  const auto lane = threadIdx.x;
  uint32_t m[4];
  load_matrices<false>(m, rows + lane * 8);
  for (int i = 0; i < 4; ++i) straight[lane * 4 + i] = m[i];
  load_matrices<true>(m, rows + lane * 8);
  for (int i = 0; i < 4; ++i) turned[lane * 4 + i] = m[i];
}

TEST(Fibers, LoadMatricesAsAWarpDoes) {
  alignas(16) uint16_t rows[32 * 8];  // matrix, row, column
  for (int i = 0; i < 256; ++i) rows[i] = static_cast<uint16_t>(i);
  std::vector<uint32_t> straight(128), turned(128);
  ASSERT_EQ(start(load, 1, 32, 0, nullptr, rows, straight.data(), turned.data()), cudaSuccess);
  for (uint32_t g = 0; g < 8; ++g)
    for (uint32_t t = 0; t < 4; ++t)
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t at = (4 * g + t) * 4 + i, first = i * 64 + g * 8 + 2 * t;
        EXPECT_EQ(straight[at], first | (first + 1) << 16);
        const uint32_t above = i * 64 + 2 * t * 8 + g;
        EXPECT_EQ(turned[at], above | (above + 8) << 16);
      }
}

}  // namespace
}  // namespace tightloop::ops::cuda
