#include "ops/quantized_linear.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/round.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <algorithm>

#include "ops/cpu_rows.h"
#include "ops/linear.h"
#include "ops/operator.h"
#include "ops/quantized_weight.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using cpu::Vec;
using Optional = std::optional<Tensor>;

TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def("quantized_linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
  m.def("dequantize(Tensor weight, int inputs, ScalarType dtype) -> Tensor");
}
using Linear = Tensor(const Tensor&, const Tensor&, const Optional&);
using Dequantize = Tensor(const Tensor&, int64_t, at::ScalarType);

const auto& linear_op() {
  static const auto op = find_operator<Linear>("tightloop::quantized_linear");
  return op;
}
const auto& dequantize_op() {
  static const auto op = find_operator<Dequantize>("tightloop::dequantize");
  return op;
}

constexpr int64_t kAtOnce = int64_t{1} << 26;  // elements of a weight that are unpacked for one product

Tensor quantize_int8(const Tensor& weight) {
  const Tensor scale = (weight.abs().amax(1, true) / 127).clamp_min(1e-30);
  const Tensor codes = at::round(weight / scale).clamp(-127, 127).to(at::kChar);
  return at::constant_pad_nd(at::cat({codes, scale.contiguous().view(at::kChar)}, 1),
                             {0, packed::kScaleRow - 4});
}

/// Of groups (..., 128): the scale, the zero point and the integers for these ends.
struct Codes {
  Codes(const Tensor& groups, const Tensor& low, const Tensor& high) {
    scale = ((high - low) / 15).clamp_min(1e-30).contiguous();
    zero = at::round(-low / scale).clamp(0, 15);
    const Tensor bits = at::bitwise_and(scale.view(at::kInt), ~15);
    scale = bits.view(at::kFloat);
    word = at::bitwise_or(bits, zero.to(at::kInt));
    codes = (at::round(groups / scale) + zero).clamp(0, 15);
    error = ((codes - zero) * scale - groups).square().sum(-1, true);
  }
  Tensor scale, zero, word, codes, error;
};

Tensor quantize_int4(const Tensor& weight) {
  const int64_t O = weight.size(0), I = weight.size(1), G = packed::groups_of(I);
  const Tensor groups = at::constant_pad_nd(weight, {0, G * packed::kGroup - I}).view({O, G, packed::kGroup});
  const Tensor low = groups.amin(-1, true).clamp_max(0), high = groups.amax(-1, true).clamp_min(0);
  Codes best(groups, low, high);
  // A few large weights are cut off where that serves the many.
  for (const double part : {0.92, 0.84, 0.76}) {
    const Codes other(groups, low * part, high * part);
    const Tensor better = other.error < best.error;
    best.error = at::where(better, other.error, best.error);
    best.word = at::where(better, other.word, best.word);
    best.codes = at::where(better, other.codes, best.codes);
  }
  const Tensor eights = best.codes.to(at::kByte).view({O, -1}).narrow(1, 0, I).reshape({O, I / 8, 4, 2});
  const auto halves = [&](int64_t odd) {  // four inputs to two bytes
    const Tensor four = eights.select(-1, odd).reshape({O, I / 8, 2, 2});
    return four.select(-1, 0) + four.select(-1, 1) * 16;
  };
  const Tensor bytes = at::cat({halves(0), halves(1)}, -1).reshape({O, I / 2});
  const Tensor words = best.word.contiguous().view({O, G}).view(at::kByte);
  const Tensor row = at::cat({bytes, words}, 1);
  return at::constant_pad_nd(row, {0, packed::int4_row(I) - row.size(1)});
}

/// Compilers turn vectors of bytes into floats one by one.
inline Vec floats_of_bytes(const signed char* at) {
#ifdef __AVX2__
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
  return std::bit_cast<Vec>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
#else
  Vec v;
  for (int64_t i = 0; i < cpu::kLanes; ++i) v[i] = static_cast<float>(at[i]);
  return v;
#endif
}

/// A row of a packed weight: vectors of 8, to be multiplied by the scale.
struct Int8Row {
  const signed char* codes;
  float scale;
  Int8Row(const void* weight, int64_t I, int64_t o)
      : codes(static_cast<const signed char*>(weight) + o * packed::int8_row(I)) {
    std::memcpy(&scale, codes + I, sizeof scale);
  }
  Vec operator()(int64_t i, int64_t = cpu::kLanes) const { return floats_of_bytes(codes + i); }
};
struct Int4Row {
  const unsigned char *codes, *words;
  static constexpr float scale = 1;  // each vector has its own
  Int4Row(const void* weight, int64_t I, int64_t o)
      : codes(static_cast<const unsigned char*>(weight) + o * packed::int4_row(I)), words(codes + I / 2) {}
  Vec operator()(int64_t i, int64_t = cpu::kLanes) const {
    uint32_t eight, word;
    std::memcpy(&eight, codes + i / 2, sizeof eight);
    std::memcpy(&word, words + i / packed::kGroup * 4, sizeof word);
    using Signed = int32_t __attribute__((vector_size(4 * cpu::kLanes)));
    constexpr cpu::Bits kShifts{packed::shift_of(0), packed::shift_of(1), packed::shift_of(2),
                                packed::shift_of(3), packed::shift_of(4), packed::shift_of(5),
                                packed::shift_of(6), packed::shift_of(7)};
    const cpu::Bits integers = ((cpu::Bits{} + eight) >> kShifts & 15) - packed::zero_in(word);
    return __builtin_convertvector(std::bit_cast<Signed>(integers), Vec) * packed::scale_in(word);
  }
};

/// body(row_of), where row_of(o) is a row of the weight.
template <class Body>
void with_rows(const Tensor& weight, int64_t I, Body&& body) {
  const void* const at = weight.const_data_ptr();
  if (weight.scalar_type() == at::kChar)
    body([=](int64_t o) { return Int8Row(at, I, o); });
  else
    body([=](int64_t o) { return Int4Row(at, I, o); });
}

Tensor quantized_cpu(const Tensor& x_in, const Tensor& weight, const Optional& bias_in) {
  const Tensor x = x_in.contiguous(), bias = bias_in ? bias_in->contiguous() : Tensor();
  auto shape = x.sizes().vec();
  const int64_t I = shape.back(), O = weight.size(0), N = I ? x.numel() / I : 0;
  shape.back() = O;
  Tensor y = at::empty(shape, x.options());
  cpu::with_dtype(x.scalar_type(), [&]<class T>(T) {
    cpu::RowsOfX rows(x.const_data_ptr<T>(), N, I);
    const T* const added = bias.defined() ? bias.const_data_ptr<T>() : nullptr;
    T* const out = y.mutable_data_ptr<T>();
    with_rows(weight, I, [&](const auto& row_of) {
      cpu::for_products(rows, N, O, I, row_of, [&](int64_t n, int64_t o, float sum) {
        const float product = sum * row_of(o).scale;
        out[n * O + o] = static_cast<T>(added ? product + static_cast<float>(added[o]) : product);
      });
    });
  });
  return y;
}

Tensor dequantize_cpu(const Tensor& weight, int64_t I, at::ScalarType dtype) {
  const int64_t O = weight.size(0);
  Tensor out = at::empty({O, I}, weight.options().dtype(dtype));
  cpu::with_dtype(dtype, [&]<class T>(T) {
    T* const to = out.mutable_data_ptr<T>();
    with_rows(weight, I, [&](const auto& row_of) {
      at::parallel_for(0, O, cpu::grain(I), [&](int64_t begin, int64_t end) {
        for (int64_t o = begin; o < end; ++o) {
          const auto row = row_of(o);
          for (int64_t i = 0; i < I; i += cpu::kLanes) cpu::store(to + o * I + i, row(i) * row.scale);
        }
      });
    });
  });
  return out;
}

TORCH_LIBRARY_IMPL(tightloop, CPU, m) {
  m.impl("quantized_linear", quantized_cpu);
  m.impl("dequantize", dequantize_cpu);
}

void check(const Tensor& weight, int64_t inputs) {
  TORCH_CHECK(is_quantized(weight) && weight.is_contiguous() && inputs % packed::kMultiple == 0 &&
                  weight.size(1) == (weight.scalar_type() == at::kChar ? packed::int8_row(inputs)
                                                                       : packed::int4_row(inputs)),
              "a weight ", weight.sizes(), " in ", weight.scalar_type(), " is no packed one of ", inputs,
              " inputs");
}

/// The kernels that read packed weights: x in 16 bits on a GPU.
bool reads_packed(const Tensor& x, const Tensor& weight) {
  const bool suits = x.is_cpu() || x.scalar_type() != at::kFloat;
  return has_kernel(x) && suits && registered(linear_op(), x) &&
         x.numel() <= packed::kMostRows * x.size(-1) && is_flat(weight);
}

}  // namespace

bool can_quantize(const Tensor& weight) {
  return weight.dim() == 2 && weight.is_floating_point() && weight.numel() > 0 &&
         weight.size(1) % packed::kMultiple == 0;
}

Tensor quantize(const Tensor& weight, WeightFormat format) {
  TORCH_CHECK(can_quantize(weight), "a weight ", weight.sizes(),
              " cannot be packed: its rows must be multiples of ", packed::kMultiple);
  const at::NoGradGuard no_grad;
  const Tensor wide = weight.to(at::kFloat);
  return format == WeightFormat::kInt8 ? quantize_int8(wide) : quantize_int4(wide);
}

bool is_quantized(const Tensor& weight) {
  return weight.dim() == 2 && (weight.scalar_type() == at::kChar || weight.scalar_type() == at::kByte);
}

Tensor dequantize(const Tensor& weight, int64_t inputs, at::ScalarType dtype) {
  check(weight, inputs);
  const bool has = dtype == at::kFloat || dtype == at::kBFloat16 || (weight.is_cuda() && dtype == at::kHalf);
  if (plain() || !has || !registered(dequantize_op(), weight)) return dequantize_plain(weight, inputs, dtype);
  at::AutoDispatchBelowADInplaceOrView below;
  return dequantize_op().call(weight, inputs, dtype);
}

Tensor dequantize_plain(const Tensor& weight_in, int64_t inputs, at::ScalarType dtype) {
  check(weight_in, inputs);
  const Tensor weight = weight_in.cpu();
  const int64_t O = weight.size(0);
  Tensor out = at::empty({O, inputs}, at::kFloat);
  with_rows(weight, inputs, [&](const auto& row_of) {
    for (int64_t o = 0; o < O; ++o) {
      const auto row = row_of(o);
      for (int64_t i = 0; i < inputs; ++i)
        out.mutable_data_ptr<float>()[o * inputs + i] =
            row(i / cpu::kLanes * cpu::kLanes)[i % cpu::kLanes] * row.scale;
    }
  });
  return out.to(weight_in.device(), dtype);
}

Tensor quantized_linear(const Tensor& x, const Tensor& weight, const Optional& bias) {
  TORCH_CHECK(
      !at::GradMode::is_enabled() || !x.requires_grad(),
      "weights in int8 and int4 are for decoding: they cannot be trained, nor can what is before them");
  const int64_t I = x.size(-1), O = weight.size(0);
  check(weight, I);
  at::AutoDispatchBelowADInplaceOrView below;
  if (reads_packed(x, weight)) return linear_op().call(x, weight, bias);
  const int64_t step = std::max<int64_t>(1, kAtOnce / I);
  const auto part = [&](int64_t first, int64_t count) {
    const Tensor wide = dequantize(weight.narrow(0, first, count), I, x.scalar_type());
    return ops::linear(x, wide, bias ? Optional(bias->narrow(0, first, count)) : bias);
  };
  if (O <= step) return part(0, O);
  auto shape = x.sizes().vec();
  shape.back() = O;
  Tensor y = at::empty(shape, x.options());
  for (int64_t first = 0; first < O; first += step) {
    const int64_t count = std::min(step, O - first);
    y.narrow(-1, first, count).copy_(part(first, count));
  }
  return y;
}

Tensor quantized_linear_plain(const Tensor& x, const Tensor& weight, const Optional& bias) {
  const auto dtype = compute_dtype(x);
  const Tensor wide = dequantize_plain(weight, x.size(-1), dtype);
  return at::linear(x.to(dtype), wide, bias ? Optional(bias->to(dtype)) : bias).to(x.scalar_type());
}

}  // namespace tightloop::ops
