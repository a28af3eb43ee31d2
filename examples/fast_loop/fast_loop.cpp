// A plain torch::nn training loop, and what Tightloop gives it: mixed precision with a GradScaler that never
// waits, activation checkpointing, an AdamW of one pass over all weights, and losses that stay on the device.
// The same code is meant for a GPU: say "cuda" instead of "cpu". (On most CPUs bf16 products are slower than
// fp32.)
#include <tightloop/amp.h>
#include <tightloop/device.h>
#include <tightloop/loss.h>
#include <tightloop/ops.h>
#include <tightloop/recompute.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdio>

namespace nn = torch::nn;
using namespace tightloop;

namespace {

constexpr int64_t kVocabulary = 64, kWidth = 128, kBlocks = 4, kRows = 16, kLength = 16;

struct BlockImpl : nn::Module {
  nn::LayerNorm norm{nn::LayerNormOptions({kWidth})};
  nn::Linear up{kWidth, 4 * kWidth}, down{4 * kWidth, kWidth};
  BlockImpl() {
    register_module("norm", norm);
    register_module("up", up);
    register_module("down", down);
  }
  at::Tensor forward(const at::Tensor& x) { return x + down(at::gelu(up(norm(x)))); }
};
TORCH_MODULE(Block);

struct ModelImpl : nn::Module {
  nn::Embedding embedding{kVocabulary, kWidth};
  std::vector<Block> blocks;
  nn::Linear head{kWidth, kVocabulary};
  ModelImpl() {
    register_module("embedding", embedding);
    register_module("head", head);
    for (int64_t i = 0; i < kBlocks; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), Block()));
  }
  /// The sum of the losses of all tokens.
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& targets) {
    at::Tensor x = embedding(ids);
    for (Block& block : blocks) {
      // Keeps x alone; the rest is computed again in the backward pass, in the same precision.
      x = recomputed(
          [block](const std::vector<at::Tensor>& inputs) mutable -> std::vector<at::Tensor> {
            const Autocast autocast(inputs[0].device().type(), at::kBFloat16);
            return {block(inputs[0])};
          },
          {x}, block->parameters())[0];
    }
    const Autocast autocast(x.device().type(), at::kBFloat16);
    const auto scores = head(x).view({-1, kVocabulary});
    return nn::functional::cross_entropy(scores.to(at::kFloat), targets.view(-1),
                                         nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
  }
};
TORCH_MODULE(Model);

/// AdamW over all weights at once. Rate, count and whether to skip are read from the device.
class FusedAdamw {
 public:
  FusedAdamw(std::vector<at::Tensor> parameters, double rate) : parameters_(std::move(parameters)) {
    for (const at::Tensor& parameter : parameters_) {
      const at::Tensor weight = parameter.detach();
      tensors_.masters.push_back(weight);
      tensors_.values.push_back(weight);
      tensors_.first.push_back(at::zeros_like(weight));
      tensors_.second.push_back(at::zeros_like(weight));
      tensors_.rate.push_back(1);
      tensors_.decay.push_back(weight.dim() > 1 ? 0.1 : 0);
    }
    control_ = at::zeros({ops::AdamwControl::kSize}, tensors_.masters[0].options());
    control_[ops::AdamwControl::kRate].fill_(rate);
  }
  std::vector<at::Tensor>& gradients() {
    tensors_.gradients.clear();
    for (const at::Tensor& parameter : parameters_) tensors_.gradients.push_back(parameter.grad());
    return tensors_.gradients;
  }
  void step(double divisor, const at::Tensor& found_inf) {
    control_[ops::AdamwControl::kDivisor].fill_(divisor);
    control_[ops::AdamwControl::kCount].add_(1 - found_inf);
    control_[ops::AdamwControl::kSkip].copy_(found_inf);
    ops::adamw_(tensors_, {0.9, 0.95, 1e-8}, control_);
    for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  }

 private:
  std::vector<at::Tensor> parameters_;
  ops::AdamwTensors tensors_;
  at::Tensor control_;
};

}  // namespace

int main() {
  const at::Device place(device("cpu").name());  // "cuda" loads the plug-in
  torch::manual_seed(1);
  Model model;
  model->to(place);
  FusedAdamw optimizer(model->parameters(), 3e-4);
  GradScaler scaler(place, {});
  constexpr int64_t kSteps = 40, kInterval = 10;
  LossBuffer losses(place, kInterval, 1);
  Syncs syncs;
  double first = 0, last = 0;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const auto ids = at::randint(kVocabulary, {kRows, kLength}, at::TensorOptions(at::kLong).device(place));
    const auto loss = model->loss(ids, (ids * 5 + 3) % kVocabulary);
    scaler.scale(loss).backward();
    scaler.unscale_(optimizer.gradients());
    scaler.step([&](const at::Tensor& found_inf) { optimizer.step(kRows * kLength, found_inf); });
    scaler.update();
    losses.column(LossBuffer::kLoss).add_(loss.detach() / (kRows * kLength));
    losses.finish(step);
    if (step % kInterval == 0) losses.extract(syncs);  // one copy for all of them
    for (const StepSums& sums : losses.arrived(step == kSteps ? 0 : 1)) {
      last = sums[LossBuffer::kLoss];
      if (sums.step == 1) first = last;
      if (sums.step % kInterval == 0) std::printf("step %3d  loss %.4f\n", static_cast<int>(sums.step), last);
    }
  }
  std::printf("fast_loop: loss %.3f to %.3f in %d steps, %d syncs\n", first, last, static_cast<int>(kSteps),
              static_cast<int>(syncs.total()));
  return last < first / 4 ? 0 : 1;
}
