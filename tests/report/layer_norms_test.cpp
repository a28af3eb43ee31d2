#include "train/optim/layer_norms.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "core/random.h"
#include "model/families/seq2seq/seq2seq.h"
#include "support.h"
#include "train/engine_fixture.h"
#include "train/recorded_device.h"

namespace tightloop::testing {
namespace {

using at::Tensor;
using Strings = std::vector<std::string>;

constexpr int64_t kRows = 2, kLength = 6, kVocab = 21;

std::unique_ptr<LanguageModel> layered_model(const std::string& family = "llama") {
  ModelConfig sizes;
  sizes.family = family;
  sizes.layers = 3, sizes.width = 16, sizes.heads = 2, sizes.ffn = 24, sizes.vocab_size = kVocab;
  sizes.resolve(0, kLength);
  return make_model(sizes, /*seed=*/3);
}

Ids ids_of(uint64_t seed) { return random_ids(seed, kRows, kLength, kVocab); }

/// One step; with `by_layer` the norms are made.
void step(EngineFixture& f, int64_t number, bool by_layer) {
  for (int64_t i = 0; i < f.config.accumulate; ++i) {
    f.add(ids_of(static_cast<uint64_t>(i)));
    f.pass(i == 0, i + 1 == f.config.accumulate, /*metrics=*/false, by_layer);
  }
  f.buffer.finish(number);
}

std::vector<Tensor> weights_of(const EngineFixture& f) {
  std::vector<Tensor> all;
  for (const auto& [name, tensor] : f.optimizer.weights()) all.push_back(tensor.to(at::kDouble).clone());
  return all;
}

/// By layer, in plain steps.
std::vector<double> plain_norms(const Layers& layers, const std::vector<Tensor>& tensors) {
  std::vector<double> squares(layers.count());
  for (size_t i = 0; i < tensors.size(); ++i)
    squares[layers.of(i)] += tensors[i].to(at::kDouble).pow(2).sum().item<double>();
  for (double& square : squares) square = std::sqrt(square);
  return squares;
}

std::vector<StepSums> sums_of(EngineFixture& f) {
  Syncs syncs;
  f.buffer.extract(syncs);
  return f.buffer.arrived(0);
}

TEST(Layers, AreBlocksAndWhatIsOutsideOfThem) {
  const auto model = layered_model();
  const Layers layers(model->parameters());
  EXPECT_EQ(layers.names().blocks, 3u);
  EXPECT_EQ(layers.names().names, (Strings{"blocks.0", "blocks.1", "blocks.2", "embedding", "final_norm"}));
  for (size_t i = 0; i < model->parameters().all().size(); ++i) {
    const auto &parameter = model->parameters().all()[i].name, &layer = layers.names().names[layers.of(i)];
    EXPECT_TRUE(parameter.starts_with(layer)) << parameter << " in " << layer;
  }
}

TEST(Layers, OfATranslatorAreTheEncodersFirst) {
  ModelConfig sizes;
  sizes.family = "seq2seq", sizes.layers = 2, sizes.width = 16, sizes.heads = 2, sizes.vocab_size = kVocab;
  sizes.source_vocab_size = kVocab;
  sizes.resolve(0, kLength);
  Seq2Seq model(sizes, 1);
  const auto names = Layers(model.parameters()).names();
  ASSERT_EQ(names.blocks, 4u);
  EXPECT_EQ(Strings(names.names.begin(), names.names.begin() + 4),
            (Strings{"encoder.blocks.0", "encoder.blocks.1", "decoder.blocks.0", "decoder.blocks.1"}));
}

/// The norms of the second step against weights before and after it, and gradients that another engine
/// stopped at.
void expect_plain_norms(const TrainConfig& config, at::ScalarType dtype, const std::string& family) {
  const auto model = layered_model(family), twin = layered_model(family), unwatched = layered_model(family);
  EngineFixture f(*model, config, dtype), stopped(*twin, config, dtype), other(*unwatched, config, dtype);
  const Layers& layers = f.optimizer.layers();
  step(f, 1, false), step(stopped, 1, false), step(other, 1, false);
  const auto before = weights_of(f);
  step(f, 2, true), step(other, 2, false);
  const auto after = weights_of(f), same = weights_of(other);
  for (size_t i = 0; i < after.size(); ++i)
    EXPECT_TRUE(at::equal(after[i], same[i])) << "watching changes " << i;

  for (int64_t i = 0; i < config.accumulate; ++i) {
    stopped.add(ids_of(static_cast<uint64_t>(i)));
    stopped.pass(i == 0, /*last=*/false);
  }
  // Not in 16 bits, which would round them once more.
  double divisor = stopped.sum(LossBuffer::kTokens);
  if (const GradScaler* scaler = stopped.optimizer.scaler()) divisor *= scaler->factor().item<double>();
  std::vector<Tensor> gradients;
  for (const Tensor& gradient : stopped.optimizer.gradients())
    gradients.push_back(gradient.to(at::kDouble) / divisor);
  std::vector<Tensor> changes;
  for (size_t i = 0; i < after.size(); ++i) changes.push_back(after[i] - before[i]);
  const auto wanted = plain_norms(layers, gradients), changed = plain_norms(layers, changes),
             weights = plain_norms(layers, before);
  const auto sums = sums_of(f);
  ASSERT_EQ(sums.size(), 2u);
  EXPECT_EQ(sums[0].grad_norms, std::vector<double>(layers.count())) << "nobody asked for them";
  ASSERT_EQ(sums[1].grad_norms.size(), layers.count());
  double all = 0;
  for (size_t i = 0; i < layers.count(); ++i) {
    const auto& name = layers.names().names[i];
    EXPECT_NEAR(sums[1].grad_norms[i], wanted[i], 1e-5 * wanted[i]) << name;
    EXPECT_GT(changed[i], 0) << name;
    // The difference of weights in fp32 is itself exact; norms are of fp32 pieces.
    EXPECT_NEAR(sums[1].update_ratios[i], changed[i] / weights[i], 1e-5 * changed[i] / weights[i]) << name;
    all += sums[1].grad_norms[i] * sums[1].grad_norms[i];
  }
  EXPECT_NEAR(std::sqrt(all), sums[1][LossBuffer::kGradNorm], 1e-5 * std::sqrt(all));
}

TEST(LayerNorms, AreThoseOfGradientsAndWeightsBeforeAndAfter) {
  for (const auto optimizer : {OptimizerKind::kAdamw, OptimizerKind::kMuon})
    for (const auto dtype : {at::kFloat, at::kBFloat16})
      for (const int64_t accumulate : {1, 2})
        for (const char* family : {"llama", "gpt2"}) {
          SCOPED_TRACE(::testing::Message()
                       << optimizer << " " << dtype << " accumulate " << accumulate << " " << family);
          TrainConfig config;
          config.optimizer = optimizer, config.accumulate = accumulate, config.clip = 0.05;
          expect_plain_norms(config, dtype, family);
        }
}

TEST(LayerNorms, OfFp16AreUnscaled) {
  TrainConfig config;
  config.loss_scale = 1024;
  expect_plain_norms(config, at::kHalf, "llama");
}

TEST(LayerNorms, OfAnUpdateThatWasSkippedAreNoChange) {
  const auto model = layered_model();
  EngineFixture f(*model, {}, at::kFloat);
  model->parameters().find("final_norm")->value.detach()[0] = NAN;
  step(f, 1, true);
  const auto sums = sums_of(f);
  EXPECT_EQ(sums[0][LossBuffer::kSkipped], 1);
  EXPECT_EQ(sums[0].update_ratios[0], 0);
  EXPECT_FALSE(std::isfinite(sums[0].grad_norms[0]));
}

TEST(LayerNorms, AreCapturedApartFromOtherStepsAndReplayed) {
  for (const auto optimizer : {OptimizerKind::kAdamw, OptimizerKind::kMuon}) {
    SCOPED_TRACE(optimizer);
    TrainConfig config;
    config.optimizer = optimizer;
    const auto plain_model = layered_model(), model = layered_model();
    RecordedDevice device;
    EngineFixture plain(*plain_model, config, at::kFloat),
        graphs(*model, config, at::kFloat, at::kCPU, 1000, 1, {}, &device);
    for (int64_t number = 1; number <= 8; ++number)
      step(plain, number, number % 2 == 0), step(graphs, number, number % 2 == 0);
    EXPECT_EQ(graphs.engine.graphs().captured, 2);
    EXPECT_EQ(graphs.engine.graphs().eager, 1);
    const auto a = weights_of(graphs), b = weights_of(plain);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
    const auto replayed = sums_of(graphs), wanted = sums_of(plain);
    for (size_t i = 0; i < wanted.size(); ++i) {
      SCOPED_TRACE(i);
      ASSERT_EQ(replayed[i].grad_norms.size(), wanted[i].grad_norms.size());
      for (size_t layer = 0; layer < wanted[i].grad_norms.size(); ++layer) {
        EXPECT_NEAR(replayed[i].grad_norms[layer], wanted[i].grad_norms[layer], 1e-9);
        EXPECT_NEAR(replayed[i].update_ratios[layer], wanted[i].update_ratios[layer], 1e-9);
      }
    }
  }
}

}  // namespace
}  // namespace tightloop::testing
