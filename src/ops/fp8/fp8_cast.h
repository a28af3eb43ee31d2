#pragma once

#include <ATen/core/Tensor.h>

namespace tightloop::ops {

/// 8-bit floating point: more digits (e4m3, up to 448) or more range (e5m2, up to 57344, for gradients).
enum class Fp8Format { kE4m3, kE5m2 };

/// A matrix (R, C) in fp8, scaled so that its largest element is the format's largest (one whose largest is
/// below 1e-30 is taken as it is); what products take: the left factor by rows, the right one by columns. x
/// is about rows * scale.
struct Fp8Matrix {
  at::Tensor rows{};     // (R, C), dense; undefined where it was not asked for
  at::Tensor columns{};  // (C, R), dense: its transpose; undefined where it was not asked for
  at::Tensor scale{};    // fp32 scalar: what an element has to be multiplied by
};

/// Largest magnitude of x as an fp32 scalar, on the device. NaN does not count.
at::Tensor absolute_max(const at::Tensor& x);

/// x (R, C) in fp8, R and C multiples of 16, rounded to the nearest; `most` is its absolute_max. An element
/// that is not finite makes elements that are NaN.
Fp8Matrix fp8_cast(const at::Tensor& x, const at::Tensor& most, Fp8Format format, bool rows, bool columns);

/// The same in ordinary ATen.
at::Tensor absolute_max_plain(const at::Tensor& x);
Fp8Matrix fp8_cast_plain(const at::Tensor& x, const at::Tensor& most, Fp8Format format, bool rows,
                         bool columns);

}  // namespace tightloop::ops
