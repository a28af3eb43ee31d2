#include "bench/decode_cases.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>

#include "ops/decode/likeliest_tokens.h"
#include "ops/decode/normed_linear.h"
#include "ops/decode/sample_tokens.h"
#include "ops/decode/swiglu_linear.h"
#include "ops/linear.h"
#include "ops/norm/rms_norm.h"
#include "ops/pointwise/swiglu.h"
#include "ops/quantized_linear.h"

namespace tightloop {

namespace {

using Tensors = std::vector<at::Tensor>;

class DecodeMaker {
 public:
  DecodeMaker(const DecodeSizes& sizes, at::ScalarType dtype, at::Device device)
      : s_(sizes), options_(at::TensorOptions(dtype).device(device)) {}

  std::vector<OpCase> all() {
    for (const auto& [O, I] : s_.weights) few_rows(O, I);
    for (const auto& [O, I] : s_.weights) O > I ? normed_rows(O, I) : swiglu_rows(O, I);
    for (const auto format : {ops::WeightFormat::kInt8, ops::WeightFormat::kInt4})
      for (const auto& [O, I] : s_.weights) packed_rows(format, O, I);
    for (const int64_t N : s_.rows) {
      sample("sample_tokens", N, 0, 1);
      sample("sample_tokens (top-k, top-p)", N, 50, 0.9);
    }
    for (const int64_t N : s_.beams) likeliest(N);
    return std::move(cases_);
  }

 private:
  OpCase& add(const std::string& op, std::string shape, Tensors inputs, OpCase::Function fused,
              OpCase::Function plain, double bytes) {
    OpCase one;
    one.op = op, one.shape = std::move(shape), one.inputs = std::move(inputs);
    one.fused = std::move(fused), one.plain = std::move(plain);
    one.backward = false, one.bytes = bytes;
    cases_.push_back(std::move(one));
    return cases_.back();
  }

  at::Tensor some(at::IntArrayRef shape) const {
    return at::randn(shape, options_.dtype(at::kFloat)).to(options_.dtype());
  }

  /// Behind inputs[0], so many weights that a product does not find its own in a cache.
  void add_weights(Tensors& inputs, int64_t O, int64_t I) const {
    const int64_t bytes = O * I * static_cast<int64_t>(options_.dtype().itemsize());
    const int64_t count = std::max<int64_t>(1, s_.weight_bytes / bytes);
    for (int64_t i = 0; i < count; ++i) inputs.push_back(some({O, I}));
  }
  /// product(rows, weight) for each of the weights.
  template <class Product>
  static OpCase::Function products(Product product) {
    return [=](const Tensors& in) {
      at::Tensor last;
      for (size_t i = 1; i < in.size(); ++i) last = product(in[0], in[i]);
      return last;
    };
  }
  /// Bytes of `inputs`, where each product reads so many rows and columns besides its weight and makes N x O.
  double bytes_of(const Tensors& inputs, int64_t read, int64_t N, int64_t O) const {
    const auto weights = static_cast<int64_t>(inputs.size()) - 1;
    return static_cast<double>(weights) * static_cast<double>(options_.dtype().itemsize()) *
           static_cast<double>(inputs[1].numel() + read + N * O);
  }

  /// Some rows by each of many weights.
  void few_rows(int64_t O, int64_t I) {
    Tensors inputs(1);
    add_weights(inputs, O, I);
    for (const int64_t N : s_.rows) {
      inputs[0] = some({N, I});
      add("linear, few rows", fmt::format("{} x {} x {}", N, I, O), inputs,
          products([](const at::Tensor& x, const at::Tensor& w) { return ops::linear(x, w); }),
          products([](const at::Tensor& x, const at::Tensor& w) { return at::linear(x, w); }),
          bytes_of(inputs, N * I, N, O))
          .graph = OpCase::Graphs::kBoth;
    }
  }

  /// A row that is made in the product's kernel, against the operators one after the other.
  void normed_rows(int64_t O, int64_t I) {
    constexpr double kEps = 1e-6;
    Tensors inputs{some({1, I})};
    add_weights(inputs, O, I);
    const at::Tensor branch = some({1, I}), norm = some({I});
    add("add, norm and linear, few rows", fmt::format("1 x {} x {}", I, O), inputs,
        products([=](const at::Tensor& x, const at::Tensor& w) {
          return ops::normed_linear(x, branch, norm, kEps, w).product;
        }),
        products([=](const at::Tensor& x, const at::Tensor& w) {
          return ops::linear(ops::add_rms_norm(x, branch, norm, kEps).normed, w);
        }),
        bytes_of(inputs, 4 * I, 1, O))
        .graph = OpCase::Graphs::kBoth;
  }
  void swiglu_rows(int64_t O, int64_t I) {
    Tensors inputs{some({1, 2 * I})};
    add_weights(inputs, O, I);
    add("swiglu and linear, few rows", fmt::format("1 x {} x {}", I, O), inputs,
        products([](const at::Tensor& x, const at::Tensor& w) { return ops::swiglu_linear(x, w); }),
        products([](const at::Tensor& x, const at::Tensor& w) { return ops::linear(ops::swiglu(x), w); }),
        bytes_of(inputs, 2 * I, 1, O))
        .graph = OpCase::Graphs::kBoth;
  }

  /// The same with weights in 8 or 4 bits, against those unpacked.
  void packed_rows(ops::WeightFormat format, int64_t O, int64_t I) {
    const at::Tensor packed = ops::quantize(some({O, I}), format);
    const int64_t count = std::max<int64_t>(1, s_.weight_bytes / packed.numel());
    const at::Tensor unpacked = ops::dequantize(packed, I, c10::typeMetaToScalarType(options_.dtype()));
    Tensors inputs(1), wide{unpacked};
    for (int64_t i = 0; i < count; ++i) inputs.push_back(packed.clone());
    const auto bytes = unpacked.numel() * unpacked.element_size();
    while (static_cast<int64_t>(wide.size()) * bytes < s_.weight_bytes) wide.push_back(unpacked.clone());
    for (const int64_t N : s_.rows) {
      inputs[0] = some({N, I});
      add(
          fmt::format("linear, few rows, {}", name_of(format)), fmt::format("{} x {} x {}", N, I, O), inputs,
          [](const Tensors& in) {
            at::Tensor last;
            for (size_t i = 1; i < in.size(); ++i) last = ops::quantized_linear(in[0], in[i]);
            return last;
          },
          [=](const Tensors& in) {
            at::Tensor last;
            for (size_t i = 1; i < in.size(); ++i) last = at::linear(in[0], wide[i % wide.size()]);
            return last;
          },
          static_cast<double>(count) *
              static_cast<double>(packed.numel() + N * (O + I) * options_.dtype().itemsize()))
          .graph = OpCase::Graphs::kBoth;
    }
  }

  void sample(const char* op, int64_t N, int64_t top_k, double top_p) {
    using Settings = ops::SampleSettings;
    const int64_t V = s_.vocabulary;
    const at::Tensor values = at::zeros({N, Settings::kValues}, at::kDouble);
    values.select(1, Settings::kTemperature).fill_(0.8);
    values.select(1, Settings::kTopP).fill_(top_p);
    const at::Tensor numbers = at::zeros({N, Settings::kNumbers}, at::kLong);
    numbers.select(1, Settings::kTopK).fill_(top_k);
    const Settings settings{values.to(options_.device()), numbers.to(options_.device())};
    const at::Tensor logits = some({N, V}) * 3;
    add(
        op, fmt::format("{} x {}", N, V), {logits},
        [=](const Tensors& in) { return ops::sample_tokens(in[0], settings).ids; },
        [=](const Tensors& in) { return ops::sample_tokens_plain(in[0], settings).ids; },
        static_cast<double>(logits.numel() * logits.element_size()))
        .graph = OpCase::Graphs::kFused;
  }

  void likeliest(int64_t N) {
    constexpr int64_t kCount = 10;  // of a beam of 5
    const int64_t V = s_.translator_vocabulary;
    const at::Tensor logits = some({N, V}) * 3;
    add(
        "likeliest_tokens", fmt::format("{} x {}", N, V), {logits},
        [=](const Tensors& in) { return ops::likeliest_tokens(in[0], kCount).log_p; },
        [=](const Tensors& in) { return ops::likeliest_tokens_plain(in[0], kCount).log_p; },
        static_cast<double>(logits.numel() * logits.element_size()))
        .graph = OpCase::Graphs::kBoth;
  }

  const DecodeSizes& s_;
  const at::TensorOptions options_;
  std::vector<OpCase> cases_;
};

}  // namespace

std::vector<OpCase> decode_cases(const DecodeSizes& sizes, at::ScalarType dtype, at::Device device) {
  return DecodeMaker(sizes, dtype, device).all();
}

}  // namespace tightloop
