#include <torch/library.h>

#include <memory>

#include "cuda/operator.h"
#include "ops/optim/adamw_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

void adamw(at::TensorList masters, at::TensorList first, at::TensorList second, at::TensorList gradients,
           at::TensorList values, at::ArrayRef<double> rate, at::ArrayRef<double> decay, double beta1,
           double beta2, double eps, const Tensor& control) {
  const Guard guard(control.device());
  const auto table = std::make_unique<ops::cuda::AdamwTable>();  // 32 KiB: not for the stack
  const auto flush = [&] {
    run(ops::cuda::Adamw{.gradients = dtype_of(gradients[0]),
                         .values = dtype_of(values[0]),
                         .table = table.get(),
                         .beta1 = static_cast<float>(beta1),
                         .beta2 = static_cast<float>(beta2),
                         .eps = static_cast<float>(eps),
                         .control = control.const_data_ptr<float>()});
    table->map = {};
  };
  for (size_t t = 0; t < masters.size(); ++t) {
    if (table->map.full()) flush();
    const int i = table->map.tensors;
    table->masters[i] = masters[t].mutable_data_ptr<float>();
    table->first[i] = first[t].mutable_data_ptr<float>();
    table->second[i] = second[t].mutable_data_ptr<float>();
    table->gradients[i] = gradients[t].const_data_ptr();
    void* value = values[t].mutable_data_ptr();
    table->values[i] = value == table->masters[i] ? nullptr : value;
    TORCH_CHECK(gradients[t].scalar_type() == gradients[0].scalar_type() &&
                    values[t].scalar_type() == values[0].scalar_type(),
                "adamw_ takes gradients of one dtype and values of one dtype");
    table->sizes[i] = masters[t].numel();
    table->rate[i] = static_cast<float>(rate[t]);
    table->decay[i] = static_cast<float>(decay[t]);
    table->map.add(masters[t].numel());
  }
  flush();
}

TIGHTLOOP_KERNELS(m) { m.impl("adamw_", adamw); }

}  // namespace

}  // namespace tightloop::cuda
