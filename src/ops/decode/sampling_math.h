#pragma once

// What sample_tokens computes with on the CPU and on a GPU alike, so that both choose the same token: steps
// that IEEE 754 rounds in one way only, and integers. Where a product is added to something it is fmaf, or
// one compiler would join them and another would not. No torch here.

#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define TIGHTLOOP_ANYWHERE __host__ __device__
#else
#define TIGHTLOOP_ANYWHERE
#endif

namespace tightloop::ops::sampling {

constexpr int64_t kMostTokens = int64_t{1}
                                << 19;  // of a vocabulary: sums of that many weights fit in 64 bits
constexpr int kIdBits = 20;
constexpr uint64_t kLastId = (uint64_t{1} << kIdBits) - 1;
constexpr int kOneBits = 44;
constexpr uint64_t kOne = uint64_t{1} << kOneBits;  // the likeliest token's weight

TIGHTLOOP_ANYWHERE inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// Numbers that are ordered as their scores are, and above 0.
TIGHTLOOP_ANYWHERE inline uint32_t key_of(float score) {
  const uint32_t bits = bits_of(score + 0.0f);  // -0 becomes 0
  return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}
TIGHTLOOP_ANYWHERE inline float score_of_key(uint32_t key) {
  const uint32_t bits = key ^ (key >> 31 ? 0x80000000u : 0xffffffffu);
  float score;
  memcpy(&score, &bits, sizeof score);
  return score;
}

/// The order of tokens by how likely they are: no two have the same rank; above 0.
TIGHTLOOP_ANYWHERE inline uint64_t rank_of(float score, int64_t id) {
  return uint64_t{key_of(score)} << kIdBits | (kLastId - static_cast<uint64_t>(id));
}
TIGHTLOOP_ANYWHERE inline int64_t id_of(uint64_t rank) {
  return static_cast<int64_t>(kLastId - (rank & kLastId));
}
TIGHTLOOP_ANYWHERE inline float score_of(uint64_t rank) {
  return score_of_key(static_cast<uint32_t>(rank >> kIdBits));
}

TIGHTLOOP_ANYWHERE inline float without_nan(float score) { return score == score ? score : -HUGE_VALF; }
/// Of a token that was seen.
TIGHTLOOP_ANYWHERE inline float penalised(float score, float penalty) {
  return score > 0 ? score / penalty : fmaf(score, penalty, 0.0f);
}

/// What differences of scores are multiplied by to be exponents of 2.
TIGHTLOOP_ANYWHERE inline float exponents_per_score(double temperature) {
  return static_cast<float>(1.4426950408889634 / temperature);
}

// 2^r for |r| <= 1/2 is 1 + r (kPower0 + r (kPower1 + ...)), to 5e-9.
constexpr float kPower0 = 0.6931471880262288f, kPower1 = 0.24022650760568126f, kPower2 = 0.05550357114219078f,
                kPower3 = 0.009618082557277852f, kPower4 = 0.0013390863364671234f,
                kPower5 = 0.0001545316294512069f;
constexpr float kRounding = 12582912.0f;  // 1.5 * 2^23: adding it leaves an integer in the low bits
constexpr float kLeastExponent = -46.0f;  // of a weight that is above 0

/// e^((score - best) / temperature) * kOne, cut off; score <= best.
TIGHTLOOP_ANYWHERE inline uint64_t weight_of(float score, float best, float per_score) {
  if (score == best) return kOne;  // both may be infinite
  const float below = score - best;
  if (!(below * per_score > kLeastExponent)) return 0;
  const float shifted = fmaf(below, per_score, kRounding), whole = shifted - kRounding;
  const float rest = fmaf(below, per_score, -whole);
  float power = fmaf(kPower5, rest, kPower4);
  power = fmaf(power, rest, kPower3);
  power = fmaf(power, rest, kPower2);
  power = fmaf(power, rest, kPower1);
  power = fmaf(power, rest, kPower0);
  power = fmaf(power, rest, 1.0f);
  // power * 2^whole is at most 1: 24 bits of it, that far to the right.
  const uint32_t bits = bits_of(power), right = 127 - (bits >> 23) - (bits_of(shifted) - bits_of(kRounding));
  return (uint64_t{(bits & 0x7fffff) | 0x800000} << (kOneBits - 23)) >> right;
}

/// The sum of weights that top_p keeps at least.
TIGHTLOOP_ANYWHERE inline uint64_t wanted_of(uint64_t total, double top_p) {
  const double wanted = ceil(static_cast<double>(total) * top_p);
  if (!(wanted > 1)) return 1;
  return wanted < static_cast<double>(total) ? static_cast<uint64_t>(wanted) : total;
}
/// The least weight that min_p keeps.
TIGHTLOOP_ANYWHERE inline uint64_t least_weight(double min_p) {
  const double least = ceil(min_p * static_cast<double>(kOne));
  if (!(least > 1)) return 1;
  return least < static_cast<double>(kOne) ? static_cast<uint64_t>(least) : kOne;
}

/// draw (64 bits after the point) x total.
TIGHTLOOP_ANYWHERE inline uint64_t target_of(uint64_t draw, uint64_t total) {
#ifdef __CUDA_ARCH__
  return __umul64hi(draw, total);
#else
  return static_cast<uint64_t>(static_cast<unsigned __int128>(draw) * total >> 64);
#endif
}
/// The draw of two random words: 53 bits of them.
TIGHTLOOP_ANYWHERE inline uint64_t draw_of(uint32_t first, uint32_t second) {
  return (uint64_t{first} << 21 ^ second >> 11) << 11;
}

}  // namespace tightloop::ops::sampling
