#include "bench/op_cases.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/full.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ops/attention/attention.h"
#include "ops/attention/rope.h"
#include "ops/attention/split_heads.h"
#include "ops/linear.h"
#include "ops/loss/fused_head.h"
#include "ops/norm/residual_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/optim/gradient_norm.h"
#include "ops/optim/muon.h"
#include "ops/pointwise/activation.h"
#include "ops/pointwise/embedding.h"
#include "ops/pointwise/expert_rows.h"
#include "ops/pointwise/gated_add.h"
#include "ops/pointwise/gelu_feed_forward.h"
#include "ops/pointwise/swiglu.h"

namespace tightloop {

namespace {

constexpr double kEps = 1e-5;
using Tensors = std::vector<at::Tensor>;

ops::Dropout drop_on(const at::Tensor& x) {
  return {0.1, at::full({}, 77, at::TensorOptions(at::kLong).device(x.device())), 3};
}

at::Tensor joined(const ops::NormedSum& made) { return at::cat({made.sum, made.normed}, -1); }
at::Tensor joined(const ops::MixedSum& made) { return at::cat({made.sum, made.normed}, -1); }
at::Tensor joined(const ops::SplitHeads& made) { return at::cat({made.q, made.k, made.v}, 2); }

/// Makes the cases of one size.
class Maker {
 public:
  Maker(const OpSizes& sizes, at::ScalarType dtype, at::Device device)
      : s_(sizes), options_(at::TensorOptions(dtype).device(device)) {}

  std::vector<OpCase> all() {
    norms();
    pointwise();
    feed_forward();
    heads();
    experts();
    losses();
    updates();
    return std::move(cases_);
  }

 private:
  at::Tensor some(at::IntArrayRef shape) const {
    return at::randn(shape, options_.dtype(at::kFloat)).to(options_.dtype());
  }
  at::Tensor ids(int64_t count) const {
    return at::randint(s_.vocabulary, {count}, options_.dtype(at::kLong));
  }

  /// `passes`: how often the largest input is read or written in both directions together.
  OpCase& add(const std::string& op, Tensors inputs, OpCase::Function fused, OpCase::Function plain,
              double passes) {
    const auto& x = inputs[0];
    OpCase one;
    one.op = op, one.shape = fmt::format("{}", fmt::join(x.sizes(), " x "));
    one.bytes = passes * static_cast<double>(x.numel() * x.element_size());
    one.inputs = std::move(inputs), one.fused = std::move(fused), one.plain = std::move(plain);
    cases_.push_back(std::move(one));
    return cases_.back();
  }

  void norms() {
    const int64_t N = s_.rows, D = s_.width;
    add(
        "rms_norm", {some({N, D}), some({D})},
        [](const Tensors& in) { return ops::rms_norm(in[0], in[1], kEps); },
        [](const Tensors& in) { return ops::rms_norm_plain(in[0], in[1], kEps); }, 5);
    add(
        "add_rms_norm", {some({N, D}), some({N, D}), some({D})},
        [](const Tensors& in) { return joined(ops::add_rms_norm(in[0], in[1], in[2], kEps)); },
        [](const Tensors& in) { return joined(ops::add_rms_norm_plain(in[0], in[1], in[2], kEps)); }, 8);
    const auto scale = [&](double value) { return at::full({}, value, options_); };
    add(
        "mix_rms_norm", {some({N, D}), some({N, D}), some({N, D}), scale(0.2), scale(1.1)},
        [](const Tensors& in) {
          return joined(ops::mix_rms_norm(in[0], in[1], in[2], kEps, {in[3], in[4]}));
        },
        [](const Tensors& in) {
          return joined(ops::mix_rms_norm_plain(in[0], in[1], in[2], kEps, {in[3], in[4]}));
        },
        10);
    add(
        "residual_norm", {some({N, D}), some({N, D}), some({D}), some({D}), some({D})},
        [](const Tensors& in) {
          return joined(ops::residual_norm(in[0], in[1], in[2], in[3], in[4], kEps, drop_on(in[0])));
        },
        [](const Tensors& in) {
          return joined(ops::residual_norm_plain(in[0], in[1], in[2], in[3], in[4], kEps, drop_on(in[0])));
        },
        9);
  }

  void pointwise() {
    const int64_t N = s_.rows, D = s_.width;
    add(
        "swiglu", {some({N, 4 * D})}, [](const Tensors& in) { return ops::swiglu(in[0]); },
        [](const Tensors& in) { return ops::swiglu_plain(in[0]); }, 4);
    add(
        "activation (GELU, bias)", {some({N, 4 * D}), some({4 * D})},
        [](const Tensors& in) { return ops::activation(in[0], in[1], ops::ActivationKind::kGeluTanh); },
        [](const Tensors& in) { return ops::activation_plain(in[0], in[1], ops::ActivationKind::kGeluTanh); },
        5);
    add(
        "dropout", {some({N, D})}, [](const Tensors& in) { return ops::dropout(in[0], drop_on(in[0])); },
        [](const Tensors& in) { return ops::dropout_plain(in[0], drop_on(in[0])); }, 4);
    auto& table = add(
        "embedding", {some({s_.vocabulary, D}), ids(N)},
        [](const Tensors& in) { return ops::embedding(in[0], in[1]); },
        [](const Tensors& in) { return ops::embedding_plain(in[0], in[1]); }, 1);
    table.fixed = {1};
    table.bytes += 3.0 * static_cast<double>(N * D * table.inputs[0].element_size());
    add(
        "linear", {some({N, D}), some({D, D})}, [](const Tensors& in) { return ops::linear(in[0], in[1]); },
        [](const Tensors& in) { return in[0].matmul(in[1].t()); }, 4)
        .flops = 6.0 * static_cast<double>(N) * static_cast<double>(D * D);
  }

  void feed_forward() {
    const int64_t N = s_.rows, D = s_.width;
    add(
        "gelu_feed_forward", {some({N, D}), 0.02 * some({4 * D, D}), some({4 * D}), 0.02 * some({D, 4 * D})},
        [](const Tensors& in) { return ops::gelu_feed_forward(in[0], in[1], in[2], in[3]); },
        [](const Tensors& in) { return ops::gelu_feed_forward_plain(in[0], in[1], in[2], in[3]); }, 20)
        .flops = 48.0 * static_cast<double>(N) * static_cast<double>(D * D);
  }

  void heads() {
    const int64_t B = s_.rows / s_.length, T = s_.length, H = s_.heads, S = s_.head_size;
    add(
        "gated_add", {some({B, T, H, S}), some({B, T, H}), some({B, T, H, S})},
        [](const Tensors& in) { return ops::gated_add(in[0], in[1], in[2], 3); },
        [](const Tensors& in) { return ops::gated_add_plain(in[0], in[1], in[2], 3); }, 6);
    const auto wide = options_.dtype(options_.dtype() == at::kDouble ? at::kDouble : at::kFloat);
    const auto frequencies = at::tensor(ops::rope_frequencies(S, 10000), at::kDouble);
    const auto angles = at::outer(at::arange(T, at::kDouble), frequencies);
    const at::Tensor cos = at::cos(angles).to(wide), sin = at::sin(angles).to(wide);
    auto& split = add(
        "split_heads (QK-norm, RoPE)", {some({B, T, 3 * H, S}), cos, sin, some({S}), some({S})},
        [H](const Tensors& in) {
          return joined(ops::split_heads(in[0], H, in[1], in[2], 0, ops::HeadNorm{kEps, in[3], in[4]}));
        },
        [H](const Tensors& in) {
          return joined(ops::split_heads_plain(in[0], H, in[1], in[2], 0, ops::HeadNorm{kEps, in[3], in[4]}));
        },
        4);
    split.fixed = {1, 2};
    auto& attention = add(
        "attention (causal)", {some({B, T, 3, H, S})},
        [](const Tensors& in) { return ops::self_attention(in[0], {.causal = true}); },
        [](const Tensors& in) {
          return ops::attention_plain(in[0].select(2, 0), in[0].select(2, 1), in[0].select(2, 2),
                                      {.causal = true}, {});
        },
        3);
    attention.flops =
        7.0 * static_cast<double>(B * H * T) * static_cast<double>(T * S);  // half of 14: causal
  }

  /// Two choices for each token, among four experts.
  void experts() {
    constexpr int64_t kExperts = 4, kChoices = 2;
    const int64_t N = s_.rows, D = s_.width;
    const auto order =
        ops::expert_order(at::randint(kExperts, {N, kChoices}, options_.dtype(at::kLong)), kExperts);
    const auto of = [](const Tensors& in) { return ops::ExpertOrder{*(in.end() - 2), in.back()}; };
    add(
        "spread_rows", {some({N, D}), order.order_M, order.place_NP},
        [of](const Tensors& in) { return ops::spread_rows(in[0], of(in)); },
        [of](const Tensors& in) { return ops::spread_rows_plain(in[0], of(in)); }, 2 + 2 * kChoices)
        .fixed = {1, 2};
    const bool wide = options_.dtype() == at::kDouble;
    add(
        "gather_rows",
        {some({N * kChoices, D}), some({N, kChoices}).to(wide ? at::kDouble : at::kFloat), order.order_M,
         order.place_NP},
        [of](const Tensors& in) { return ops::gather_rows(in[0], in[1], of(in)); },
        [of](const Tensors& in) { return ops::gather_rows_plain(in[0], in[1], of(in)); }, 4)
        .fixed = {2, 3};
  }

  void losses() {
    const int64_t N = s_.rows / 4, D = s_.width, V = s_.vocabulary;
    add(
        "cross_entropy", {some({N, V}), ids(N)},
        [](const Tensors& in) { return ops::cross_entropy(in[0], in[1]).objective; },
        [](const Tensors& in) { return ops::cross_entropy_plain(in[0], in[1]).objective; }, 3)
        .fixed = {1};
    cases_.back().loss = true;
    auto& head = add(
        "fused_head", {some({N, D}), 0.02 * some({V, D}), ids(N)},
        [](const Tensors& in) { return ops::fused_head(in[0], in[1], in[2]).objective; },
        [](const Tensors& in) { return ops::fused_head_plain(in[0], in[1], in[2]).objective; }, 3);
    head.fixed = {2}, head.loss = true;
    head.flops = 6.0 * static_cast<double>(N) * static_cast<double>(V * D);
  }

  /// Of fp32 masters with gradients and values in the dtype, as training has them.
  void updates() {
    const int64_t m = s_.width, n = 4 * s_.width, K = 4;
    const auto fp32 = options_.dtype(at::kFloat);
    const auto element = static_cast<double>(some({1}).element_size());
    const auto elements = static_cast<double>(K * m * n);
    const auto many = [&](const at::TensorOptions& options) {
      Tensors list;
      for (int64_t i = 0; i < K; ++i) list.push_back(at::randn({m, n}, fp32).to(options.dtype()));
      return list;
    };
    const auto zeros = [&] {
      Tensors list;
      for (int64_t i = 0; i < K; ++i) list.push_back(at::zeros({m, n}, fp32));
      return list;
    };
    const auto update = [&](const char* op, const Tensors& gradients, auto fused, auto plain, double bytes) {
      add(op, {gradients[0]}, std::move(fused), std::move(plain), 0).backward = false;
      cases_.back().shape = fmt::format("{} of {} x {}", K, m, n);
      cases_.back().bytes = bytes * elements;
    };
    const Tensors gradients = many(options_);
    update(
        "gradient_norm", gradients, [=](const Tensors&) { return ops::gradient_norm(gradients); },
        [=](const Tensors&) { return ops::gradient_norm_plain(gradients); }, element);
    const ops::AdamwTensors adamw{.masters = many(fp32),
                                  .first = zeros(),
                                  .second = zeros(),
                                  .gradients = gradients,
                                  .values = many(options_),
                                  .rate = std::vector<double>(K, 1),
                                  .decay = std::vector<double>(K, 0.1)};
    const auto control = at::tensor({1e-4, 100.0, 10.0, 0.0, 0.9, 1.0}, at::kFloat).to(options_.device());
    const auto adamw_control = control.narrow(0, 0, ops::AdamwControl::kSize);
    const ops::AdamwBetas betas{0.9, 0.95, 1e-8};
    update(
        "adamw_", gradients,
        [=](const Tensors&) { return ops::adamw_(adamw, betas, adamw_control), adamw.masters[0]; },
        [=](const Tensors&) { return ops::adamw_plain_(adamw, betas, adamw_control), adamw.masters[0]; },
        24 + 2 * element);
    const ops::MuonTensors muon{.masters = many(fp32),
                                .gradients = gradients,
                                .values = many(options_),
                                .momentum = at::zeros({K, m, n}, fp32),
                                .variance = at::zeros({K, 1, n}, fp32)};
    const ops::MuonSettings settings{0.02, 0.9, 0.1, c10::typeMetaToScalarType(options_.dtype())};
    update(
        "muon_", gradients,
        [=](const Tensors&) { return ops::muon_(muon, settings, control), muon.masters[0]; },
        [=](const Tensors&) { return ops::muon_plain_(muon, settings, control), muon.masters[0]; },
        16 + 2 * element);
    // Five steps of three products each, of (m, m) with (m, n) twice and (m, m) with (m, m) once.
    cases_.back().flops = 5.0 * static_cast<double>(K) *
                          (4.0 * static_cast<double>(m * m) * static_cast<double>(n) +
                           2.0 * static_cast<double>(m * m) * static_cast<double>(m));
  }

  const OpSizes s_;
  const at::TensorOptions options_;
  std::vector<OpCase> cases_;
};

}  // namespace

std::vector<OpCase> op_cases(const OpSizes& sizes, at::ScalarType dtype, at::Device device) {
  return Maker(sizes, dtype, device).all();
}

}  // namespace tightloop
