#include "model/parts/experts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/max.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/config.h"
#include "ops/fp8/fp8_linear.h"
#include "ops/linear.h"
#include "ops/operator.h"
#include "ops/pointwise/expert_rows.h"
#include "ops/pointwise/swiglu.h"

namespace tightloop {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// y = x weight[e]^T for the rows of expert e, which end before ends[e]; x (M, in), weight (E, out, in).
struct GroupedLinear : torch::autograd::Function<GroupedLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& ends) {
    context->save_for_backward({x, weight, ends});
    return at::_grouped_mm(x, weight.transpose(1, 2), ends);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &ends = saved[2];
    const auto dy = gradients[0].contiguous();
    const auto dx = at::_grouped_mm(dy, weight, ends);
    auto dweight = at::_grouped_mm(dy.t(), x, ends);
    ops::clear_idle_experts(dweight, ends);  // whatever the kernel leaves there
    return {dx, dweight, at::Tensor()};
  }
};

bool can_group(const at::Tensor& x, const Experts& experts) {
  const int64_t bytes = x.element_size();
  const bool aligned = experts.down.size(1) * bytes % 16 == 0 && experts.down.size(2) * bytes % 16 == 0;
  return !ops::plain() && aligned && x.scalar_type() != at::kDouble;
}

}  // namespace

Routing route(const at::Tensor& x, const Experts& experts, const ModelConfig& config) {
  const ops::WithoutFp8 chosen_as_in_use;
  const auto logits = ops::linear(x.reshape({-1, x.size(-1)}), experts.router_ED);
  Routing routing;
  routing.scores_NE = at::softmax(logits, -1, ops::compute_dtype(x));
  const int64_t P = config.experts_per_token;
  // For the first alone, max is the quicker one on a GPU.
  std::tie(routing.weights_NP, routing.chosen_NP) =
      P == 1 ? at::max(routing.scores_NE, -1, /*keepdim=*/true) : at::topk(routing.scores_NE, P);
  if (config.norm_topk)
    routing.weights_NP = routing.weights_NP / routing.weights_NP.sum(-1, /*keepdim=*/true);
  const auto flat = routing.chosen_NP.flatten();
  routing.counts_E = (flat.unsqueeze(1) == at::arange(config.experts, flat.options())).sum(0);
  routing.load_E = routing.counts_E.to(at::kFloat) / static_cast<double>(flat.size(0));
  return routing;
}

at::Tensor run_experts(const at::Tensor& x, const Routing& routing, const Experts& experts) {
  if (!can_group(x, experts)) return run_experts_plain(x, routing, experts);
  const auto order = ops::expert_order(routing.chosen_NP, experts.router_ED.size(0));
  const auto ends = routing.counts_E.cumsum(0).to(at::kInt);
  const auto rows = ops::spread_rows(x.reshape({-1, x.size(-1)}), order);
  const auto inner = ops::swiglu(GroupedLinear::apply(rows, experts.gate_up, ends));
  const auto outputs = GroupedLinear::apply(inner, experts.down, ends);
  return ops::gather_rows(outputs, routing.weights_NP, order).view(x.sizes());
}

at::Tensor run_experts_plain(const at::Tensor& x, const Routing& routing, const Experts& experts) {
  const int64_t D = x.size(-1), P = routing.chosen_NP.size(1);
  const auto tokens = x.reshape({-1, D});
  const auto flat = routing.chosen_NP.flatten();
  auto outputs = at::zeros({flat.size(0), D}, x.options());
  const ops::WithoutFp8 as_grouped;
  for (int64_t e = 0; e < experts.router_ED.size(0); ++e) {
    const auto choices = (flat == e).nonzero().flatten();
    const auto rows = tokens.index_select(0, choices.floor_divide(P));
    const auto inner = ops::swiglu(ops::linear(rows, experts.gate_up.select(0, e)));
    outputs = at::index_add(outputs, 0, choices, ops::linear(inner, experts.down.select(0, e)));
  }
  const auto& weights = routing.weights_NP;
  const auto each = outputs.view({weights.size(0), P, D});
  return (each * weights.unsqueeze(2)).sum(1).to(x.scalar_type()).view(x.sizes());
}

at::Tensor balance_loss(const Routing& routing, const ModelConfig& config) {
  const auto E = static_cast<double>(config.experts);
  const auto mean_E = routing.scores_NE.mean(0);
  if (config.balance == BalanceLoss::kMinimind) {
    const auto visits_E = routing.load_E * static_cast<double>(config.experts_per_token);
    return (visits_E * mean_E).sum() * (E * config.balance_coef);
  }
  const auto load_E = routing.load_E + (mean_E - mean_E.detach());
  return (load_E - 1 / E).pow(2).sum() * config.balance_coef;
}

}  // namespace tightloop
