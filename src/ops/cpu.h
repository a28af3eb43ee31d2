#pragma once

// What the CPU kernels share: eight floats at a time, in the compilers' own vector types, so that speed does
// not hang on what the optimizer recognises. Everything computes in fp32; bf16 is rounded when stored.

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

// Without AVX g++ warns about how vectors are passed from one library to another: none of these are.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace tightloop::ops::cpu {

constexpr int64_t kLanes = 8;
using Vec = float __attribute__((vector_size(4 * kLanes)));
using Bits = uint32_t __attribute__((vector_size(4 * kLanes)));
using HalfBits = uint16_t __attribute__((vector_size(2 * kLanes)));

inline Vec broadcast(float value) { return value - Vec{}; }  // a sum would lose the sign of -0

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline Vec load(const c10::BFloat16* p) {
  HalfBits half;
  std::memcpy(&half, p, sizeof half);
  return std::bit_cast<Vec>(__builtin_convertvector(half, Bits) << 16);
}

inline void store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }
/// To the nearest, ties to even, as torch rounds.
inline void store(c10::BFloat16* p, Vec v) {
  const Bits bits = std::bit_cast<Bits>(v);
  Bits rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  rounded = v != v ? Bits{} + 0x7fc0 : rounded;
  const HalfBits half = __builtin_convertvector(rounded, HalfBits);
  std::memcpy(p, &half, sizeof half);
}

using All = std::integral_constant<int64_t, kLanes>;

/// The first `lanes` elements at p; the other lanes are `fill`.
template <class T>
Vec load(const T* p, int64_t lanes, float fill = 0) {
  T padded[kLanes];
  std::fill(padded, padded + kLanes, T(fill));
  std::memcpy(static_cast<void*>(padded), p, lanes * sizeof(T));
  return load(padded);
}
template <class T>
Vec load(const T* p, All, float = 0) {
  return load(p);
}
template <class T>
void store(T* p, Vec v, int64_t lanes) {
  T padded[kLanes];
  store(padded, v);
  std::memcpy(static_cast<void*>(p), padded, lanes * sizeof(T));
}
template <class T>
void store(T* p, Vec v, All) {
  store(p, v);
}

/// body(i, lanes) for whole vectors and then for what is left of n; pass `lanes` on to load and store.
template <class Body>
inline __attribute__((always_inline)) void for_vectors(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, All{});
  if (i < n) body(i, n - i);
}

inline float sum(Vec v) {
  float total = 0;
  for (int64_t i = 0; i < kLanes; ++i) total += v[i];
  return total;
}
inline Vec larger(Vec a, Vec b) { return a > b ? a : b; }
inline float largest(Vec v) {
  float best = v[0];
  for (int64_t i = 1; i < kLanes; ++i) best = std::max(best, v[i]);
  return best;
}

/// e^x to about 1 unit in the last place over [-87, 88]; 0 below, no larger than e^88 above, NaN for NaN.
/// 2^n * (Taylor series of e^r to the 7th power), |r| <= ln(2)/2; the dropped term is under 2^-27.
inline Vec exp(Vec x) {
  const Vec kRound = broadcast(12582912.0f);  // 1.5 * 2^23: adding it leaves an integer in the low bits
  const Vec clamped = larger(broadcast(-87.0f), x < 88.0f ? x : broadcast(88.0f));
  const Vec shifted = clamped * 1.44269504f + kRound;
  const Vec n = shifted - kRound;
  const Vec r = (clamped - n * 0.693145751953125f) - n * 1.42860682e-6f;  // ln 2 in two parts
  Vec p = broadcast(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Vec power = std::bit_cast<Vec>((std::bit_cast<Bits>(shifted) + 127) << 23);
  const Vec result = x < -87.0f ? Vec{} : p * power;
  return x != x ? x : result;
}

inline Vec sigmoid(Vec x) { return 1.0f / (1.0f + exp(-x)); }

inline bool supports(c10::ScalarType dtype) { return dtype == c10::kFloat || dtype == c10::kBFloat16; }

/// Calls body(T{}) with the C++ type of a supported dtype.
template <class Body>
void with_dtype(c10::ScalarType dtype, Body&& body) {
  if (dtype == c10::kBFloat16)
    body(c10::BFloat16{});
  else
    body(float{});
}

/// Rows per task, so that a task is worth a thread's while (about 16k elements).
inline int64_t grain(int64_t row_size) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, row_size));
}

}  // namespace tightloop::ops::cpu
