#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>

#include "core/choice.h"

namespace tightloop::ops {

/// How a weight (out, in) is packed for decoding, whose time goes into reading weights.
///   kInt8: integers from -127 to 127 and a scale for each output. (out, in + 16) int8: the integers, the
///     scale in fp32.
///   kInt4: integers from 0 to 15 with a scale and a zero point for each group of 128 inputs, chosen for the
///     least squared error. (out, in / 2 + 4 for each group, in whole 16 bytes) uint8: eight inputs to 4
///     bytes, those with even numbers in the low half; then words of fp32 scales whose last 4 bits are the
///     zero point.
enum class WeightFormat { kInt8, kInt4 };

/// Whether a weight can be packed: a matrix whose rows are multiples of 32.
bool can_quantize(const at::Tensor& weight);
at::Tensor quantize(const at::Tensor& weight, WeightFormat format);
/// Whether it is a packed one: these alone are matrices of bytes.
bool is_quantized(const at::Tensor& weight);
/// (out, inputs), rounded once.
at::Tensor dequantize(const at::Tensor& weight, int64_t inputs, at::ScalarType dtype);
at::Tensor dequantize_plain(const at::Tensor& weight, int64_t inputs, at::ScalarType dtype);

/// ops::linear with a packed weight. Few rows (16) read it as it is: products of x with the integers in fp32
/// sums, then the scale, the bias and one rounding. More rows are multiplied with the weight in x's dtype, a
/// part of it after the other. No gradient: with one it is an error.
at::Tensor quantized_linear(const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias = {});
at::Tensor quantized_linear_plain(const at::Tensor& x, const at::Tensor& weight,
                                  const std::optional<at::Tensor>& bias = {});

}  // namespace tightloop::ops

namespace tightloop {
template <>
inline constexpr auto kChoices<ops::WeightFormat> = std::to_array<Choice<ops::WeightFormat>>({
    {ops::WeightFormat::kInt8, "int8"},
    {ops::WeightFormat::kInt4, "int4"},
});
}  // namespace tightloop
