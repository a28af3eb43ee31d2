#include "model/parts/recompute.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace tightloop {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Held : torch::CustomClassHolder {
  Held(BlockFunction block, size_t inputs) : block(std::move(block)), inputs(inputs) {}
  BlockFunction block;
  size_t inputs;  // the first so many of the saved tensors; parameters follow
};

struct Recompute : torch::autograd::Function<Recompute> {
  static variable_list forward(AutogradContext* context, const c10::intrusive_ptr<Held>& held,
                               at::TensorList tensors) {
    context->set_materialize_grads(false);
    context->saved_data["held"] = c10::IValue::make_capsule(held);
    context->save_for_backward(tensors.vec());
    return held->block(tensors.slice(0, held->inputs).vec());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto held = c10::static_intrusive_pointer_cast<Held>(context->saved_data["held"].toCapsule());
    const auto saved = context->get_saved_variables();
    variable_list inputs, wanted;
    for (size_t i = 0; i < held->inputs; ++i) {
      inputs.push_back(saved[i].detach());
      if (context->needs_input_grad(i)) wanted.push_back(inputs.back().requires_grad_());
    }
    wanted.insert(wanted.end(), saved.begin() + static_cast<int64_t>(held->inputs), saved.end());

    variable_list roots, flowing;
    {
      c10::AutoGradMode on(true);
      const auto outputs = held->block(inputs);
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
        roots.push_back(outputs[i]);
        flowing.push_back(gradients[i]);
      }
    }
    auto found = torch::autograd::grad(roots, wanted, flowing, /*retain_graph=*/std::nullopt,
                                       /*create_graph=*/false, /*allow_unused=*/true);
    variable_list results{at::Tensor()};  // the block itself has none
    size_t next = 0;
    for (size_t i = 0; i < saved.size(); ++i) {
      const bool has = i >= held->inputs || inputs[i].requires_grad();
      results.push_back(has ? std::move(found[next++]) : at::Tensor());
    }
    return results;
  }
};

}  // namespace

std::vector<at::Tensor> recomputed(BlockFunction block, const std::vector<at::Tensor>& inputs,
                                   const std::vector<at::Tensor>& parameters) {
  if (!c10::GradMode::is_enabled()) return block(inputs);
  auto tensors = inputs;
  for (const auto& parameter : parameters)
    if (parameter.defined() && parameter.requires_grad()) tensors.push_back(parameter);
  return Recompute::apply(c10::make_intrusive<Held>(std::move(block), inputs.size()),
                          at::TensorList(tensors));
}

}  // namespace tightloop
