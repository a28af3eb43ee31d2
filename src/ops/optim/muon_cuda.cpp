#include "ops/optim/muon.h"

#include <torch/library.h>

#include <algorithm>
#include <memory>

#include "cuda/operator.h"
#include "ops/optim/muon_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;
using ops::AdamwControl, ops::MuonControl;
using ops::cuda::kTableSize;

/// body(first, count) for as many of the stack's matrices as a table holds, and so on.
template <class Body>
void by_table(const Tensor& stack, Body&& body) {
  for (int64_t first = 0; first < stack.size(0); first += kTableSize)
    body(first, static_cast<int>(std::min<int64_t>(kTableSize, stack.size(0) - first)));
}

void muon_start(at::TensorList gradients, const Tensor& momentum, const Tensor& x, const Tensor& control) {
  const Guard guard(control.device());
  const float* numbers = control.const_data_ptr<float>();
  ops::cuda::MuonGradients table;
  by_table(x, [&](int64_t first, int count) {
    for (int i = 0; i < count; ++i) {
      const Tensor& gradient = gradients[static_cast<size_t>(first + i)];
      TORCH_CHECK(gradient.scalar_type() == gradients[0].scalar_type(), "muon_ takes gradients of one dtype");
      table.at[i] = gradient.const_data_ptr();
    }
    run(ops::cuda::MuonStart{.gradients = dtype_of(gradients[0]),
                             .x = dtype_of(x),
                             .table = &table,
                             .matrices = count,
                             .rows = static_cast<int>(x.size(1)),
                             .columns = static_cast<int>(x.size(2)),
                             .momentum = momentum[first].mutable_data_ptr<float>(),
                             .to = x[first].mutable_data_ptr(),
                             .divisor = numbers + AdamwControl::kDivisor,
                             .mu = numbers + MuonControl::kMomentum,
                             .skip = numbers + AdamwControl::kSkip});
  });
}

void muon_end(at::TensorList masters, at::TensorList values, const Tensor& x, const Tensor& scale, double lr,
              double decay, const Tensor& control) {
  const Guard guard(control.device());
  const float* numbers = control.const_data_ptr<float>();
  ops::cuda::MuonWeights table;
  by_table(x, [&](int64_t first, int count) {
    for (int i = 0; i < count; ++i) {
      const Tensor& value = values[static_cast<size_t>(first + i)];
      TORCH_CHECK(value.scalar_type() == x.scalar_type(), "muon_ takes values of the compute dtype");
      table.masters[i] = masters[static_cast<size_t>(first + i)].mutable_data_ptr<float>();
      void* to = value.mutable_data_ptr();
      table.values[i] = to == table.masters[i] ? nullptr : to;
    }
    run(ops::cuda::MuonEnd{.x = dtype_of(x),
                           .table = &table,
                           .matrices = count,
                           .rows = static_cast<int>(x.size(1)),
                           .columns = static_cast<int>(x.size(2)),
                           .from = x[first].const_data_ptr(),
                           .scale = scale[first].const_data_ptr<float>(),
                           .by_row = scale.size(2) == 1,
                           .lr = static_cast<float>(lr),
                           .decay = static_cast<float>(decay),
                           .lr_scale = numbers + AdamwControl::kRate,
                           .decay_scale = numbers + MuonControl::kDecay,
                           .skip = numbers + AdamwControl::kSkip});
  });
}

TIGHTLOOP_KERNELS(m) {
  m.impl("muon_start_", muon_start);
  m.impl("muon_end_", muon_end);
}

}  // namespace

}  // namespace tightloop::cuda
