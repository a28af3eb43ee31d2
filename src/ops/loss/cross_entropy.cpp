#include "ops/loss/cross_entropy.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/square.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// One pass gives the loss and, when asked for, its gradient: by backward() the probabilities would have to be
// computed again.
TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def(
      "cross_entropy(Tensor logits, Tensor targets, Tensor(a!) losses, Tensor(b!)? gradient, "
      "Tensor(c!)? correct, Tensor? scale, float softcap, float label_smoothing, float z_loss) -> ()");
}

using Rows = void(const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&,
                  const std::optional<Tensor>&, const std::optional<Tensor>&, double, double, double);

/// To about 2 units in the last place. Near 0 by the Taylor series, where 1 - e^-2x would cancel.
cpu::Vec tanh(cpu::Vec x) {
  const cpu::Vec e = cpu::exp(-2.0f * (x < 0.0f ? -x : x));
  const cpu::Vec far = (1.0f - e) / (1.0f + e);
  const cpu::Vec s = x * x;
  const cpu::Vec near =
      x * (1.0f + s * (-1.0f / 3 + s * (2.0f / 15 + s * (-17.0f / 315 + s * (62.0f / 2835)))));
  return s < 0.0625f ? near : (x < 0.0f ? -far : far);
}

struct RowScratch {
  std::vector<float> exps, capped;
};

struct RowOptions {
  float softcap, label_smoothing, z_loss, scale;
};

// z: the logits after the cap. The gradient may overwrite them.
template <bool Capped, class In, class Out>
float loss_of_row(const In* z, int64_t target, Out* gradient, float* e, int64_t V,
                  const RowOptions& options) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  const float at_target = static_cast<float>(z[target]);
  cpu::Vec most = cpu::broadcast(kNothing);
  cpu::for_vectors(
      V, [&](int64_t i, auto lanes) { most = cpu::larger(cpu::load(z + i, lanes, kNothing), most); });
  const float largest = cpu::largest(most);
  cpu::Vec sums{};
  cpu::for_vectors(V, [&](int64_t i, auto lanes) {
    const cpu::Vec v = cpu::exp(cpu::load(z + i, lanes, kNothing) - largest);
    cpu::store(e + i, v, lanes);
    sums += v;
  });
  const float sum = cpu::sum(sums), log_sum = std::log(sum), all = log_sum + largest;
  const float smoothing = options.label_smoothing, z_loss = options.z_loss;
  float loss = log_sum + (largest - at_target);
  if (smoothing > 0) {
    cpu::Vec below{};
    cpu::for_vectors(V, [&](int64_t i, auto lanes) { below += largest - cpu::load(z + i, lanes, largest); });
    const float mean = log_sum + cpu::sum(below) / static_cast<float>(V);
    loss = (1 - smoothing) * loss + smoothing * mean;
  }
  loss += z_loss * all * all;
  if (!gradient) return loss;

  const float of_sum = options.scale * (1 + 2 * z_loss * all) / sum;
  const float spread = options.scale * smoothing / static_cast<float>(V);
  const float cap = options.softcap, inverse = Capped ? 1 / (cap * cap) : 0;
  const auto slope = [&](auto value) { return 1.0f - value * value * inverse; };  // of cap * tanh(x / cap)
  cpu::for_vectors(V, [&](int64_t i, auto lanes) {
    cpu::Vec v = cpu::load(e + i, lanes) * of_sum - spread;
    if constexpr (Capped) v *= slope(cpu::load(z + i, lanes));
    cpu::store(gradient + i, v, lanes);
  });
  const float of_target = e[target] * of_sum - spread - options.scale * (1 - smoothing);
  gradient[target] = static_cast<Out>(Capped ? of_target * slope(at_target) : of_target);
  return loss;
}

template <class T>
float loss_of_row(const T* logits, int64_t target, T* gradient, RowScratch& scratch, int64_t V,
                  const RowOptions& options) {
  if (options.softcap == 0) {
    return loss_of_row<false>(logits, target, gradient, scratch.exps.data(), V, options);
  }
  const float cap = options.softcap;
  float* capped = scratch.capped.data();
  cpu::for_vectors(V, [&](int64_t i, auto lanes) {
    cpu::store(capped + i, cap * tanh(cpu::load(logits + i, lanes) / cap), lanes);
  });
  return loss_of_row<true>(capped, target, gradient, scratch.exps.data(), V, options);
}

// As argmax has it: of equals the first is the largest.
template <class T>
bool is_largest(const T* logits, int64_t target, int64_t V) {
  const auto wanted = static_cast<float>(logits[target]);
  bool beaten = false;
  for (int64_t i = 0; i < target; ++i) beaten |= !(static_cast<float>(logits[i]) < wanted);
  for (int64_t i = target + 1; i < V; ++i) beaten |= !(static_cast<float>(logits[i]) <= wanted);
  return !beaten;
}

void cross_entropy_cpu(const Tensor& logits_in, const Tensor& targets_in, const Tensor& losses,
                       const std::optional<Tensor>& gradient, const std::optional<Tensor>& correct,
                       const std::optional<Tensor>& scale, double softcap, double label_smoothing,
                       double z_loss) {
  const RowOptions options{.softcap = static_cast<float>(softcap),
                           .label_smoothing = static_cast<float>(label_smoothing),
                           .z_loss = static_cast<float>(z_loss),
                           .scale = scale ? *scale->const_data_ptr<float>() : 1};
  const Tensor logits = logits_in.contiguous(), targets = targets_in.contiguous();
  const int64_t N = logits.size(0), V = logits.size(1);
  TORCH_CHECK(!gradient || gradient->is_contiguous(), "cross_entropy: the gradient must be contiguous");
  const int64_t* wanted = targets.const_data_ptr<int64_t>();
  bool* right = correct ? correct->mutable_data_ptr<bool>() : nullptr;
  float* loss = losses.mutable_data_ptr<float>();
  cpu::with_dtype(logits.scalar_type(), [&]<class T>(T) {
    const T* from = logits.const_data_ptr<T>();
    T* to = gradient ? gradient->mutable_data_ptr<T>() : nullptr;
    at::parallel_for(0, N, cpu::grain(2 * V), [&](int64_t begin, int64_t end) {
      RowScratch scratch{std::vector<float>(V), std::vector<float>(softcap > 0 ? V : 0)};
      for (int64_t row = begin; row < end; ++row) {
        const int64_t target = wanted[row];
        T* row_gradient = to ? to + row * V : nullptr;
        if (target == kIgnoreIndex) {
          if (row_gradient) std::fill(row_gradient, row_gradient + V, T(0.0f));
          if (right) right[row] = false;
          loss[row] = 0;
          continue;
        }
        TORCH_CHECK(target >= 0 && target < V, "cross_entropy: target ", target, " in row ", row,
                    " is not a token of a vocabulary of ", V);
        if (right) right[row] = is_largest(from + row * V, target, V);
        loss[row] = loss_of_row(from + row * V, target, row_gradient, scratch, V, options);
      }
    });
  });
}

TORCH_LIBRARY_IMPL(tightloop, CPU, m) { m.impl("cross_entropy", cross_entropy_cpu); }

// The gradients are there already: backward hands them out.
struct WithGradients : torch::autograd::Function<WithGradients> {
  static Tensor forward(AutogradContext* context, const Tensor& /*input*/,
                        const std::optional<Tensor>& /*weight*/, const ComputedLoss& computed,
                        const std::function<Tensor()>& objective) {
    context->save_for_backward({computed.d_input, computed.d_weight});
    return objective();
  }

  static variable_list backward(AutogradContext* context, const variable_list& flow) {
    TORCH_CHECK(!flow[0].is_cpu() || flow[0].item<double>() == 1,
                "the gradient that flows into LossSum::objective must be 1 (it is ", flow[0].item<double>(),
                "): scale the loss by LossOptions::scale");
    const auto gradients = context->get_saved_variables();
    return {gradients[0], gradients[1], Tensor(), Tensor()};
  }
};

void check(const Tensor& logits, const Tensor& targets, const LossOptions& options) {
  TORCH_CHECK(logits.dim() == 2 && targets.dim() == 1 && targets.size(0) == logits.size(0),
              "cross_entropy: logits must be (rows, vocabulary) and targets (rows)");
  TORCH_CHECK(targets.scalar_type() == at::kLong, "cross_entropy: targets must be int64");
  const Tensor& scale = options.scale;
  TORCH_CHECK(!scale.defined() || (scale.dim() == 0 && scale.scalar_type() == compute_dtype(logits) &&
                                   scale.device() == logits.device()),
              "cross_entropy: the scale must be an fp32 scalar on the logits' device");
}

// A result that a saved tensor, a view or a base shares its memory with has more than one owner.
bool nobody_else_holds(const Tensor& x) {
  return x.use_count() == 1 && x.storage().use_count() == 1 && !x.is_leaf() && x.is_contiguous();
}

Tensor sum_of(const Tensor& losses) {
  if (!losses.is_cpu()) return losses.sum();
  const Tensor wide = losses.to(at::kDouble).contiguous();
  const double* loss = wide.const_data_ptr<double>();
  double total = 0;
  for (int64_t row = 0; row < wide.numel(); ++row) total += loss[row];
  return at::scalar_tensor(total, losses.options());
}

}  // namespace

void cross_entropy_rows(const Tensor& logits, const Tensor& targets, const LossRows& to,
                        const LossOptions& options) {
  check(logits, targets, options);
  static const auto kernel = find_operator<Rows>("tightloop::cross_entropy");
  const auto given = [](const Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; };
  at::AutoDispatchBelowADInplaceOrView below;
  kernel.call(logits, targets, to.losses, given(to.gradient), given(to.correct), given(options.scale),
              options.softcap, options.label_smoothing, options.z_loss);
}

LossSum finish_loss(const ComputedLoss& computed, const Tensor& targets, const LossOptions& options,
                    const Tensor& input, const std::optional<Tensor>& weight) {
  const Tensor sum = sum_of(computed.losses);
  const auto objective = [&] { return options.scale.defined() ? sum * options.scale : sum.clone(); };
  const bool learning = computed.d_input.defined() || computed.d_weight.defined();
  return {learning ? WithGradients::apply(input, weight, computed, objective) : objective(), sum,
          (targets != kIgnoreIndex).sum(), computed.losses, computed.correct};
}

LossSum cross_entropy(Tensor logits, const Tensor& targets, const LossOptions& options) {
  check(logits, targets, options);
  if (!has_kernel(logits)) return cross_entropy_plain(logits, targets, options);
  LossRows rows{at::empty(targets.sizes(), targets.options().dtype(at::kFloat))};
  if (logits.requires_grad() && c10::GradMode::is_enabled())
    rows.gradient = nobody_else_holds(logits) ? logits.tensor_data()
                                              : at::empty_like(logits, at::MemoryFormat::Contiguous);
  if (options.correct) rows.correct = at::empty(targets.sizes(), targets.options().dtype(at::kBool));
  cross_entropy_rows(logits, targets, rows, options);
  return finish_loss({rows.losses, rows.correct, rows.gradient}, targets, options, logits);
}

LossSum cross_entropy_plain(const Tensor& logits, const Tensor& targets, const LossOptions& options) {
  check(logits, targets, options);
  const double cap = options.softcap;
  Tensor z = logits.to(compute_dtype(logits));
  if (cap > 0) z = at::tanh(z / cap) * cap;
  const Tensor counted = targets != kIgnoreIndex;
  Tensor losses =
      at::cross_entropy_loss(z, targets, {}, at::Reduction::None, kIgnoreIndex, options.label_smoothing);
  if (options.z_loss > 0) {
    const Tensor extra = at::square(at::logsumexp(z, {1})) * options.z_loss;
    losses = losses + at::where(counted, extra, at::zeros_like(extra));
  }
  const Tensor sum = losses.sum();
  return {options.scale.defined() ? sum * options.scale : sum, sum.detach(), counted.sum(), losses.detach(),
          options.correct ? (logits.detach().argmax(1) == targets) : Tensor()};
}

}  // namespace tightloop::ops
