#include "train/optim/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <map>
#include <set>

#include "model/families/seq2seq/seq2seq.h"
#include "model/language_model.h"
#include "ops/compare.h"
#include "support.h"
#include "train/optim/parameter_groups.h"

namespace tightloop {
namespace {

using testing::error_of;

struct Fixture {
  Parameters parameters{5};
  at::Tensor matrix = parameters.add("matrix", {6, 4}, {Init::kNormal, 1.0}, ParameterRole::kMatrix);
  at::Tensor vector = parameters.add("vector", {4}, {Init::kOnes}, ParameterRole::kNorm);
  TrainConfig config;
  Optimizer optimizer(at::ScalarType dtype = at::kFloat) {
    return {parameters, config, ModelConfig{}, dtype};
  }
};

Rates full(double scale = 1) { return {.lr_scale = scale}; }

// AdamW as the paper writes it, in double.
struct Reference {
  at::Tensor value, first, second;
  explicit Reference(const at::Tensor& start)
      : value(start.detach().to(at::kDouble)), first(at::zeros_like(value)), second(at::zeros_like(value)) {}
  void step(const at::Tensor& gradient, const TrainConfig& c, double lr, double decay, int64_t t) {
    first = first * c.beta1 + gradient * (1 - c.beta1);
    second = second * c.beta2 + gradient * gradient * (1 - c.beta2);
    const auto m = first / (1 - std::pow(c.beta1, t)), v = second / (1 - std::pow(c.beta2, t));
    value = value * (1 - lr * decay) - m / (at::sqrt(v) + c.eps) * lr;
  }
};

TEST(AdamW, FollowsThePaperWithClippingAndTokenCounts) {
  Fixture f;
  f.config.clip = 0.7, f.config.weight_decay = 0.3;
  Reference matrix(f.matrix), vector(f.vector);
  f.config.lr = 1e-2;
  Optimizer optimizer = f.optimizer();
  for (int64_t t = 1; t <= 50; ++t) {
    const auto gm = at::randn_like(f.matrix.detach()), gv = at::randn_like(f.vector.detach());
    f.matrix.mutable_grad() = gm.clone(), f.vector.mutable_grad() = gv.clone();
    optimizer.accumulate({true});
    const int64_t tokens = 3 + t % 4;
    const double norm = optimizer.step(full(), static_cast<double>(tokens)).item<double>();
    const auto mean_m = gm.to(at::kDouble) / tokens, mean_v = gv.to(at::kDouble) / tokens;
    const double expected = std::sqrt((mean_m.pow(2).sum() + mean_v.pow(2).sum()).item<double>());
    EXPECT_NEAR(norm, expected, 1e-5 * expected);
    const double scale = std::min(1.0, 0.7 / expected);
    matrix.step(mean_m * scale, f.config, 1e-2, 0.3, t);
    vector.step(mean_v * scale, f.config, 1e-2, 0.0, t);
  }
  EXPECT_LT((f.matrix - matrix.value).abs().max().item<double>(), 1e-5);
  EXPECT_LT((f.vector - vector.value).abs().max().item<double>(), 1e-5);
}

TEST(AdamW, AccumulatingIsAdding) {
  Fixture once, twice;
  const auto a = at::randn_like(once.matrix.detach()), b = at::randn_like(once.matrix.detach());
  const auto v = at::randn_like(once.vector.detach());
  twice.config.accumulate = 2;
  Optimizer first = once.optimizer(), second = twice.optimizer();
  once.matrix.mutable_grad() = a + b, once.vector.mutable_grad() = v + v;
  first.accumulate({true});
  first.step(full(), 10);
  for (const auto& g : {a, b}) {
    twice.matrix.mutable_grad() = g.clone(), twice.vector.mutable_grad() = v.clone();
    second.accumulate({/*first=*/g.is_same(a)});
    EXPECT_FALSE(twice.matrix.grad().defined()) << "cleared, not zeroed";
  }
  second.step(full(), 10);
  EXPECT_TRUE(at::equal(once.matrix, twice.matrix));
  EXPECT_TRUE(at::equal(once.vector, twice.vector));
}

TEST(AdamW, SmallUpdatesSurviveBf16) {
  Fixture f;
  f.config.weight_decay = 0;
  f.config.lr = 1e-4;
  Optimizer optimizer = f.optimizer(at::kBFloat16);
  const auto before = optimizer.weights()[1].second.clone();
  EXPECT_EQ(f.vector.scalar_type(), at::kBFloat16);
  for (int step = 0; step < 100; ++step) {
    f.matrix.mutable_grad() = at::full_like(f.matrix.detach(), 1.0),
    f.vector.mutable_grad() = at::full_like(f.vector.detach(), 1.0);
    optimizer.accumulate({true});
    optimizer.step(full(), 1);  // 1 - 1e-4 rounds to 1 in bf16
  }
  EXPECT_NEAR((before - optimizer.weights()[1].second).mean().item<double>(), 1e-2, 1e-4);
  EXPECT_NEAR(f.vector.to(at::kFloat).mean().item<double>(), 0.99, 4e-3)
      << "the model sees the masters, rounded";
}

TEST(AdamW, WeightsThatDoNotFitAreNamed) {
  Fixture f;
  Safetensors file;
  file.tensors["matrix"] = at::zeros_like(f.matrix.detach());
  EXPECT_NE(
      error_of(ExitCode::kCheckpoint, [&] { load_weights(f.parameters, file, "file"); }).find("'vector'"),
      std::string::npos);
  file.tensors["vector"] = at::zeros_like(f.matrix.detach());
  const auto message = error_of(ExitCode::kCheckpoint, [&] { load_weights(f.parameters, file, "file"); });
  EXPECT_NE(message.find("[6, 4]"), std::string::npos) << message;
  EXPECT_NE(message.find("[4]"), std::string::npos) << message;
  file.tensors["vector"] = at::zeros_like(f.vector.detach());
  file.tensors["more"] = at::zeros_like(f.vector.detach());
  EXPECT_NE(error_of(ExitCode::kCheckpoint, [&] { load_weights(f.parameters, file, "file"); }).find("'more'"),
            std::string::npos);
}

/// tests/golden/make_optimizers.py made the numbers and says how.
const Safetensors& optimizer_golden() {
  static const Safetensors file =
      read_safetensors(testing::source_folder() / "tests/golden/optimizers.safetensors");
  return file;
}

double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

TEST(AdamW, FollowsTorchForAHundredSteps) {
  Parameters parameters(1);
  TrainConfig config;
  config.lr = 1e-2, config.clip = 1.5, config.weight_decay = 0.1;
  const std::vector<std::string> names{"matrix", "vector"};
  for (const auto& name : names) {
    const auto& start = optimizer_golden().tensors.at("adamw.start." + name);
    parameters.add(name, start.sizes(), {Init::kZeros}, ParameterRole::kMatrix).detach().copy_(start);
  }
  Optimizer optimizer(parameters, config, ModelConfig{}, at::kFloat);
  for (int64_t step = 0; step < 100; ++step) {
    for (const auto& name : names) {
      parameters.find(name)->value.mutable_grad() =
          optimizer_golden().tensors.at("adamw.gradients." + name)[step].clone();
    }
    optimizer.accumulate({true});
    optimizer.step(full(1 - static_cast<double>(step) / 200), 3);
  }
  for (const auto& name : names)
    EXPECT_LT(
        relative_difference(parameters.find(name)->value, optimizer_golden().tensors.at("adamw.end." + name)),
        1e-6)
        << name;
}

/// What nanochat's optimizer is told about the golden parameters.
ParameterRole golden_role(const std::string& name) {
  static const std::map<std::string, ParameterRole> others{
      {"embedding", ParameterRole::kEmbedding},
      {"head", ParameterRole::kHead},
      {"value_embedding.1", ParameterRole::kValueEmbedding},
      {"resid_scale", ParameterRole::kResidualScale},
      {"x0_scale", ParameterRole::kInputScale},
      {"smear_gate", ParameterRole::kSmear},
      {"smear_scale", ParameterRole::kSmear},
      {"backout_scale", ParameterRole::kSmear}};
  const auto found = others.find(name);
  return found == others.end() ? ParameterRole::kMatrix : found->second;
}

struct MuonFixture {
  ModelConfig model;
  TrainConfig config;
  Parameters parameters{1};

  explicit MuonFixture(at::Device device = at::kCPU) {
    model.width = 8, model.heads = 2, model.kv_heads = 1, model.head_size = 4;
    config.optimizer = OptimizerKind::kMuon, config.clip = 0;
    const std::map<std::string, std::vector<int64_t>> parts{{"blocks.0.qkv", {8, 4, 4}},
                                                            {"blocks.0.gate_up", {10, 10}}};
    for (const auto& [full, start] : optimizer_golden().tensors) {
      const std::string prefix = "muon.start.";
      if (!full.starts_with(prefix)) continue;
      const std::string name = full.substr(prefix.size());
      parameters
          .add(name, start.sizes(), {Init::kZeros}, golden_role(name),
               parts.contains(name) ? parts.at(name) : std::vector<int64_t>{})
          .detach()
          .copy_(start);
    }
    parameters.to(device, at::kFloat);
  }
  void step(Optimizer& optimizer, int64_t step) {
    for (const auto& parameter : parameters.all()) {
      parameter.value.mutable_grad() =
          optimizer_golden()
              .tensors.at("muon.gradient." + std::to_string(step) + "." + parameter.name)
              .clone()
              .to(parameter.value.device());
    }
    optimizer.accumulate({true});
    const double s = static_cast<double>(step);
    optimizer.step({.lr_scale = 1 - 0.05 * s, .decay_scale = 1 - s / 12, .momentum = 0.85 + 0.01 * s}, 1);
  }
};

class MuonRuleOn : public testing::OnDevice {};
ON_EVERY_DEVICE(MuonRuleOn);

TEST_P(MuonRuleOn, FollowsNanochat) {
  MuonFixture f(device);
  ASSERT_EQ(f.parameters.all().size(), 13u);
  Optimizer optimizer(f.parameters, f.config, f.model, at::kFloat);
  for (int64_t step = 0; step < 12; ++step) f.step(optimizer, step);
  for (const auto& parameter : f.parameters.all())
    EXPECT_LT(relative_difference(parameter.value.to(at::kCPU),
                                  optimizer_golden().tensors.at("muon.end." + parameter.name)),
              1e-5)
        << parameter.name;
}

// For the next stage of a run: moments and count alone, the weights are loaded already.
TEST(Muon, TakesOverAnothersMoments) {
  MuonFixture parent, child;
  Optimizer first(parent.parameters, parent.config, parent.model, at::kFloat);
  for (int64_t step = 0; step < 3; ++step) parent.step(first, step);
  Safetensors state;
  for (const auto& [name, tensor] : first.state()) state.tensors[name] = tensor.clone();
  Optimizer second(child.parameters, child.config, child.model, at::kFloat);
  std::vector<at::Tensor> before;
  for (const auto& [name, tensor] : second.weights()) before.push_back(tensor.clone());
  second.load_state(state);
  for (const auto& [name, tensor] : second.state())
    EXPECT_TRUE(at::equal(tensor, state.tensors.at(name))) << name;
  const auto after = second.weights();
  for (size_t i = 0; i < after.size(); ++i)
    EXPECT_TRUE(at::equal(after[i].second, before[i])) << after[i].first;
}

TEST(Muon, GoesOnFromItsState) {
  MuonFixture whole, parts;
  Optimizer first(whole.parameters, whole.config, whole.model, at::kFloat);
  Safetensors weights, state;
  for (int64_t step = 0; step < 12; ++step) {
    if (step == 5) {
      for (const auto& [name, tensor] : first.weights()) weights.tensors[name] = tensor.clone();
      for (const auto& [name, tensor] : first.state()) state.tensors[name] = tensor.clone();
    }
    whole.step(first, step);
  }
  Optimizer second(parts.parameters, parts.config, parts.model, at::kFloat);
  second.load(weights, state);
  for (int64_t step = 5; step < 12; ++step) parts.step(second, step);
  for (const auto& parameter : whole.parameters.all())
    EXPECT_TRUE(at::equal(parameter.value, parts.parameters.find(parameter.name)->value)) << parameter.name;
}

std::map<std::string, at::Tensor> state_of(Parameters& parameters, const ModelConfig& model) {
  TrainConfig config;
  config.optimizer = OptimizerKind::kMuon;
  std::map<std::string, at::Tensor> state;
  const Optimizer optimizer(parameters, config, model, at::kFloat);
  for (const auto& [name, tensor] : optimizer.state()) state[name] = tensor;
  return state;
}

// AdamW keeps first and second moments, Muon a momentum for each matrix.
TEST(Muon, LeavesASourceEmbeddingToAdamWAndSplitsCrossKv) {
  ModelConfig sizes;
  sizes.family = "seq2seq", sizes.share_embeddings = false, sizes.source_vocab_size = 30;
  sizes.vocab_size = 20, sizes.layers = 1, sizes.width = 8, sizes.heads = 2, sizes.ffn = 12;
  sizes.resolve(0, 6);
  Seq2Seq model(sizes, 1);
  const auto state = state_of(model.parameters(), sizes);
  EXPECT_TRUE(state.contains("first.source_embedding"));
  EXPECT_FALSE(state.contains("momentum.source_embedding.0"));
  for (const char* name : {"decoder.blocks.0.cross_kv", "decoder.blocks.0.qkv", "encoder.blocks.0.qkv"})
    for (int part = 0; part < (std::string(name).ends_with("qkv") ? 3 : 2); ++part) {
      const auto found = state.find(fmt::format("momentum.{}.{}", name, part));
      ASSERT_NE(found, state.end()) << name << part;
      EXPECT_EQ(found->second.sizes(), (std::vector<int64_t>{8, 8})) << name;
    }
  EXPECT_TRUE(state.contains("momentum.decoder.blocks.0.cross_q.0"));
  EXPECT_TRUE(state.contains("first.decoder.blocks.0.cross_norm"));
}

TEST(Muon, TakesTheMatricesOfEveryFamily) {
  for (const char* family : {"gpt2", "llama", "qwen2", "qwen3", "qwen3_moe", "nanochat"}) {
    ModelConfig sizes;
    sizes.family = family, sizes.layers = 2, sizes.width = 32, sizes.heads = 4, sizes.vocab_size = 20;
    if (std::string(family) != "gpt2") sizes.kv_heads = 2;
    sizes.tie_embeddings = false;
    sizes.resolve(0, 16);
    const auto model = make_model(sizes, 1);
    std::set<std::string> wanted, taken;
    for (const auto& parameter : model->parameters().all())
      if (parameter.value.dim() >= 2 && parameter.name.starts_with("blocks.") &&
          !parameter.name.ends_with("value_embedding"))
        wanted.insert(parameter.name);
    const auto state = state_of(model->parameters(), sizes);
    for (const auto& [name, tensor] : state) {
      if (!name.starts_with("momentum.")) continue;
      taken.insert(name.substr(9, name.rfind('.') - 9));
      EXPECT_LE(tensor.size(0), name.find("qkv") == std::string::npos ? sizes.ffn : sizes.width) << name;
    }
    EXPECT_EQ(taken, wanted) << family;
    EXPECT_TRUE(state.contains("first.head")) << family;
    EXPECT_TRUE(state.contains("momentum.blocks.1.qkv.2")) << family;
  }
}

TEST(AdamW, DecaysMatricesAndNoVectorsUnlessTold) {
  for (const bool all : {false, true}) {
    Fixture f;
    f.config.lr = 0.1, f.config.weight_decay = 0.5, f.config.decay_vectors = all;
    Optimizer optimizer = f.optimizer();
    const auto matrix = f.matrix.detach().clone();
    f.matrix.mutable_grad() = at::zeros_like(matrix),
    f.vector.mutable_grad() = at::zeros_like(f.vector.detach());
    optimizer.accumulate({true});
    optimizer.step(full(), 1);
    EXPECT_LT(relative_difference(f.matrix, matrix * 0.95), 1e-6);
    EXPECT_NEAR(f.vector[0].item<double>(), all ? 0.95 : 1.0, 1e-6);
  }
}

}  // namespace
}  // namespace tightloop
