#include "ops/pointwise/gated_add.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>
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
  m.def("gated_add_forward(Tensor x, Tensor open, Tensor extra, float scale) -> Tensor");
  m.def(
      "gated_add_backward(Tensor dy, Tensor open, Tensor extra, float scale) -> (Tensor dopen, Tensor "
      "dextra)");
}

using GatedAddForward = Tensor(const Tensor&, const Tensor&, const Tensor&, double);
using GatedAddBackward = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, double);

struct GatedAddFunction : torch::autograd::Function<GatedAddFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& open, const Tensor& extra,
                        double scale) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<GatedAddForward>("tightloop::gated_add_forward");
    context->save_for_backward({open, extra});
    context->saved_data["scale"] = scale;
    return kernel.call(x, open, extra, scale);
  }

  static variable_list backward(AutogradContext* context, const variable_list& dy) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<GatedAddBackward>("tightloop::gated_add_backward");
    const auto saved = context->get_saved_variables();
    auto [dopen, dextra] = kernel.call(dy[0], saved[0], saved[1], context->saved_data["scale"].toDouble());
    return {dy[0], dopen, dextra, Tensor()};
  }
};

bool gated_add_fits(const Tensor& x, const Tensor& open, const Tensor& extra) {
  static const auto forward = find_operator<GatedAddForward>("tightloop::gated_add_forward");
  constexpr int64_t kPack = 16, kMost = 32 * kPack;  // bytes: a head has at most a warp's threads
  const int64_t bytes = x.size(3) * x.element_size();
  const bool packs = bytes % kPack == 0 && bytes <= kMost && x.stride(3) == 1 && x.stride(2) == x.size(3) &&
                     x.stride(1) * x.element_size() % kPack == 0 && x.stride(0) == x.size(1) * x.stride(1) &&
                     reinterpret_cast<uintptr_t>(x.const_data_ptr()) % kPack == 0;
  return has_kernel(x) && registered(forward, x) && packs && is_flat(extra) && open.is_contiguous();
}

}  // namespace

Tensor gated_add(const Tensor& x, const Tensor& open, const Tensor& extra, double scale) {
  TORCH_CHECK(x.dim() == 4 && extra.sizes() == x.sizes() && open.sizes() == x.sizes().slice(0, 3) &&
                  open.scalar_type() == x.scalar_type() && extra.scalar_type() == x.scalar_type() &&
                  open.device() == x.device() && extra.device() == x.device(),
              "gated_add: x ", x.sizes(), ", a gate for each head ", open.sizes(), " and extra ",
              extra.sizes(), " do not belong together");
  if (!gated_add_fits(x, open, extra)) return gated_add_plain(x, open, extra, scale);
  return GatedAddFunction::apply(x, open, extra, scale);
}

Tensor gated_add_plain(const Tensor& x, const Tensor& open, const Tensor& extra, double scale) {
  return x + (scale * at::sigmoid(open)).unsqueeze(3) * extra;
}

}  // namespace tightloop::ops
