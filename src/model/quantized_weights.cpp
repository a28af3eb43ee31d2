#include "model/quantized_weights.h"

#include <ATen/core/grad_mode.h>

#include "core/choice.h"
#include "core/error.h"
#include "core/interrupt.h"

namespace tightloop {

QuantizedWeights quantize_weights(Model& model, ops::WeightFormat format, at::Device device) {
  const at::NoGradGuard no_grad;
  QuantizedWeights made;
  const auto pack = [&](const at::Tensor& weight, ops::WeightFormat as) {
    throw_if_interrupted();
    const at::Tensor packed = ops::quantize(weight.detach().to(device), as);
    ++made.matrices, made.elements += weight.numel(), made.bytes += packed.numel();
    return packed;
  };
  const at::Tensor head = model.head().weight_VD;
  bool own_head = false;
  for (const Parameter& parameter : model.parameters().all()) {
    at::Tensor value = parameter.value;
    const bool is_head = parameter.role == ParameterRole::kHead;
    const bool router = parameter.name.ends_with("router");  // which expert it is hangs on little
    if ((!is_head && parameter.role != ParameterRole::kMatrix) || router || !ops::can_quantize(value))
      continue;
    own_head |= is_head;
    const at::Tensor packed = pack(value, is_head ? ops::WeightFormat::kInt8 : format);
    value.set_requires_grad(false);
    value.set_data(packed);
  }
  if (!own_head && ops::can_quantize(head)) model.use_packed_head(pack(head, ops::WeightFormat::kInt8));
  if (made.matrices == 0)
    throw usage_error("no weight of this model can be in {}: rows of multiples of 32 inputs are wanted.",
                      name_of(format));
  return made;
}

}  // namespace tightloop
