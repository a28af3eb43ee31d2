// Twenty steps against plain PyTorch: tests/golden/make_training.py made the numbers and says how.
#include <ATen/TensorOperators.h>
#include <ATen/ops/max.h>

#include "model/families/llama/llama.h"
#include "ops/config.h"
#include "support.h"
#include "train/engine/loss.h"
#include "train/optim/optimizer.h"

namespace tightloop {
namespace {

double golden_difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

struct TrainingFile {
  Safetensors file = read_safetensors(testing::source_folder() / "tests/golden/training.safetensors");
  ModelConfig sizes;
  TrainConfig train;

  TrainingFile() {
    sizes.layers = 2, sizes.width = 32, sizes.heads = 4, sizes.kv_heads = 2, sizes.ffn = 64,
    sizes.vocab_size = 64;
    sizes.resolve(0, 0);
    sizes.tie_embeddings = false;
    train.steps = 20, train.warmup_steps = 5, train.lr = 1e-2, train.min_lr = 0.1, train.clip = 0.5;
    train.accumulate = 2;  // or more: sums are kept
    train.weight_decay = 0.1, train.beta1 = 0.9, train.beta2 = 0.95, train.eps = 1e-8;
  }
  Safetensors weights(const std::string& prefix) const {
    Safetensors part;
    for (const auto& [name, tensor] : file.tensors)
      if (name.starts_with(prefix)) part.tensors[name.substr(prefix.size())] = tensor;
    return part;
  }
};

void follow_pytorch() {
  const TrainingFile golden;
  Llama model(golden.sizes, /*seed=*/1);
  load_weights(model.parameters(), golden.weights("start."), "training.safetensors");
  Optimizer optimizer(model.parameters(), golden.train, golden.sizes, at::kFloat);
  const auto inputs = golden.file.tensors.at("inputs").to(at::kLong),
             targets = golden.file.tensors.at("targets").to(at::kLong);
  const auto losses = golden.file.tensors.at("losses"), norms = golden.file.tensors.at("norms");
  for (int64_t step = 0; step < 20; ++step) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t micro = 0; micro < inputs.size(1); ++micro) {
      const auto loss = loss_of(model, {inputs[step][micro], targets[step][micro]});
      loss.objective.backward();
      optimizer.accumulate({micro == 0});
      sum += loss.sum.item<double>();
      count += loss.count.item<int64_t>();
    }
    const auto norm =
        optimizer.step(rates_at(golden.train, step + 1, 0), static_cast<double>(count)).item<double>();
    const double expected = losses[step].item<double>(), expected_norm = norms[step].item<double>();
    EXPECT_NEAR(sum / static_cast<double>(count) / expected, 1, 1e-4) << "loss of step " << step + 1;
    EXPECT_NEAR(norm / expected_norm, 1, 1e-3) << "gradient norm of step " << step + 1;
  }
  for (const auto& [name, tensor] : optimizer.weights())
    EXPECT_LT(golden_difference(tensor, golden.file.tensors.at("end." + name)), 1e-3) << name;
}

TEST(GoldenTraining, TwentyStepsFollowPyTorch) { follow_pytorch(); }

TEST(GoldenTraining, PlainOperatorsFollowItToo) {
  ops::use_plain(true);
  follow_pytorch();
  ops::use_plain(false);
}

}  // namespace
}  // namespace tightloop
