#include "ops/pointwise/expert_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// There is no CPU kernel: torch's passes are good there.
TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  // Row place[n, p] is x[n], times weights[n, p]; and the scalar products of x[n] with those of `rows`.
  m.def(
      "expert_rows_spread(Tensor x, Tensor place, Tensor? weights, Tensor? rows) -> (Tensor spread, Tensor "
      "dots)");
  m.def("expert_rows_gather(Tensor rows, Tensor place, Tensor? weights) -> Tensor");
  m.def("expert_rows_clear(Tensor(a!) matrices, Tensor ends) -> ()");
}

using Spread = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const std::optional<Tensor>&,
                                          const std::optional<Tensor>&);
using Gather = Tensor(const Tensor&, const Tensor&, const std::optional<Tensor>&);
using Clear = void(const Tensor&, const Tensor&);

const auto& spread_kernel() {
  static const auto kernel = find_operator<Spread>("tightloop::expert_rows_spread");
  return kernel;
}
const auto& gather_kernel() {
  static const auto kernel = find_operator<Gather>("tightloop::expert_rows_gather");
  return kernel;
}

struct SpreadFunction : torch::autograd::Function<SpreadFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& place) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({place});
    return std::get<0>(spread_kernel().call(x, place, {}, {}));
  }

  static variable_list backward(AutogradContext* context, const variable_list& dy) {
    at::AutoDispatchBelowADInplaceOrView below;
    return {gather_kernel().call(dy[0], context->get_saved_variables()[0], {}), Tensor()};
  }
};

struct GatherFunction : torch::autograd::Function<GatherFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& rows, const Tensor& weights,
                        const Tensor& place) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({rows, weights, place});
    return gather_kernel().call(rows, place, weights);
  }

  static variable_list backward(AutogradContext* context, const variable_list& dy) {
    at::AutoDispatchBelowADInplaceOrView below;
    const auto saved = context->get_saved_variables();
    auto [drows, dweights] = spread_kernel().call(dy[0], saved[2], saved[1], saved[0]);
    return {drows, dweights, Tensor()};
  }
};

// Rows in another order, and their gradients back in the old one: `back` undoes `order`. Of index_select's
// own gradient, which adds up rows that may come twice, nothing is needed.
struct Permute : torch::autograd::Function<Permute> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& order, const Tensor& back) {
    context->save_for_backward({back});
    return x.index_select(0, order);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gradients[0].index_select(0, context->get_saved_variables()[0]), Tensor(), Tensor()};
  }
};

bool takes(const Tensor& rows) {
  return has_kernel(rows) && registered(gather_kernel(), rows) && is_flat(rows) && has_short_rows(rows);
}

}  // namespace

ExpertOrder expert_order(const Tensor& chosen_NP, int64_t experts) {
  constexpr int64_t kBytes = 256;
  auto keys = chosen_NP.flatten();
  if (experts <= kBytes) keys = keys.to(at::kByte);  // sorted in one pass instead of eight
  ExpertOrder found{.order_M = at::argsort(keys, /*stable=*/true, 0, /*descending=*/false),
                    .place_NP = at::empty_like(chosen_NP)};
  found.place_NP.view(-1).scatter_(0, found.order_M,
                                   at::arange(found.order_M.size(0), found.order_M.options()));
  return found;
}

Tensor spread_rows(const Tensor& x_ND, const ExpertOrder& order) {
  TORCH_CHECK(x_ND.dim() == 2 && order.place_NP.dim() == 2 && order.place_NP.size(0) == x_ND.size(0),
              "spread_rows: ", x_ND.sizes(), " tokens and ", order.place_NP.sizes(),
              " choices do not belong together");
  return takes(x_ND) ? SpreadFunction::apply(x_ND, order.place_NP) : spread_rows_plain(x_ND, order);
}

Tensor gather_rows(const Tensor& rows_MD, const Tensor& weights_NP, const ExpertOrder& order) {
  TORCH_CHECK(rows_MD.dim() == 2 && weights_NP.sizes() == order.place_NP.sizes() &&
                  rows_MD.size(0) == order.place_NP.numel(),
              "gather_rows: rows ", rows_MD.sizes(), ", weights ", weights_NP.sizes(), " and ",
              order.place_NP.sizes(), " choices do not belong together");
  const bool fits = takes(rows_MD) && weights_NP.scalar_type() == at::kFloat && weights_NP.is_contiguous();
  return fits ? GatherFunction::apply(rows_MD, weights_NP, order.place_NP)
              : gather_rows_plain(rows_MD, weights_NP, order);
}

Tensor spread_rows_plain(const Tensor& x_ND, const ExpertOrder& order) {
  const int64_t D = x_ND.size(1), P = order.place_NP.size(1);
  const auto each = x_ND.unsqueeze(1).expand({-1, P, D}).reshape({-1, D});
  return Permute::apply(each, order.order_M, order.place_NP.flatten());
}

Tensor gather_rows_plain(const Tensor& rows_MD, const Tensor& weights_NP, const ExpertOrder& order) {
  const auto each = Permute::apply(rows_MD, order.place_NP.flatten(), order.order_M)
                        .view({weights_NP.size(0), weights_NP.size(1), rows_MD.size(1)});
  const auto weighted = each * weights_NP.unsqueeze(2);
  const auto sum = weights_NP.size(1) == 1 ? weighted.select(1, 0) : weighted.sum(1);
  return sum.to(rows_MD.scalar_type());
}

void clear_idle_experts(const Tensor& matrices, const Tensor& ends_E) {
  static const auto kernel = find_operator<Clear>("tightloop::expert_rows_clear");
  if (has_kernel(matrices) && registered(kernel, matrices) && is_flat(matrices))
    return kernel.call(matrices, ends_E);
  const int64_t E = ends_E.size(0);
  const auto begins = at::cat({at::zeros({1}, ends_E.options()), ends_E.narrow(0, 0, E - 1)});
  matrices.masked_fill_((begins == ends_E).view({E, 1, 1}), 0);
}

}  // namespace tightloop::ops
