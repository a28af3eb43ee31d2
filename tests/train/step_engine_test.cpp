#include "train/engine/step_engine.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include "core/random.h"
#include "ops/compare.h"
#include "support.h"
#include "train/engine_fixture.h"

namespace tightloop {
namespace {

using at::Tensor;
using testing::EngineFixture;
using testing::error_of;
using testing::Ids;

constexpr int64_t kEngineRows = 8, kEngineLength = 6, kEngineVocab = 21;

ModelConfig engine_model(const std::string& family = "llama") {
  ModelConfig sizes;
  sizes.family = family, sizes.experts = 3, sizes.experts_per_token = 2, sizes.expert_ffn = 16;
  sizes.balance_coef = 0;
  sizes.layers = 1, sizes.width = 16, sizes.heads = 2, sizes.ffn = 24, sizes.vocab_size = kEngineVocab;
  sizes.resolve(0, kEngineLength);
  return sizes;
}

/// EngineRows of which the n-th has n supervised tokens (row 0: none), and their ids.
struct EngineRows {
  Tensor inputs = at::empty({kEngineRows, kEngineLength}, at::kLong),
         targets = at::empty({kEngineRows, kEngineLength}, at::kLong);
  EngineRows() {
    Random random(4);
    for (int64_t row = 0; row < kEngineRows; ++row)
      for (int64_t t = 0; t < kEngineLength; ++t) {
        inputs[row][t] = static_cast<int64_t>(random.below(kEngineVocab));
        const auto target = static_cast<int64_t>(random.below(kEngineVocab));
        targets[row][t] = t < row ? target : ops::kIgnoreIndex;
      }
  }
  Ids batch(int64_t first, int64_t count) const {
    return {inputs.narrow(0, first, count), targets.narrow(0, first, count)};
  }
};

/// Gradients of one step over the rows, `rows` at a time, divided as the optimizer would.
std::vector<Tensor> gradients(int64_t rows, at::ScalarType dtype, const TrainConfig& base,
                              std::vector<Ids> batches = {}, const std::string& family = "llama") {
  const EngineRows data;
  auto model = make_model(engine_model(family), /*seed=*/3);
  model->parameters().to(at::kCPU, dtype);
  TrainConfig config = base;
  for (int64_t first = 0; first < kEngineRows; first += rows) batches.push_back(data.batch(first, rows));
  config.accumulate = static_cast<int64_t>(batches.size());
  return EngineFixture(*model, config, dtype).gradients(batches);
}

double difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, testing::relative_error(a[i], b[i]));
  return most;
}

TEST(Accumulation, IsTheSameHoweverTheRowsAreCut) {
  for (const auto head : {AutoSwitch::kOff, AutoSwitch::kOn})
    for (const auto& [dtype, tolerance] : {std::pair{at::kDouble, 1e-12}, {at::kFloat, 1e-5}}) {
      SCOPED_TRACE(::testing::Message() << dtype << " fused head " << head);
      TrainConfig config;
      config.fused_head = head, config.z_loss = 1e-3, config.label_smoothing = 0.1;
      const auto whole = gradients(8, dtype, config);
      EXPECT_LT(difference(gradients(1, dtype, config), whole), tolerance);
      EXPECT_LT(difference(gradients(4, dtype, config), whole), tolerance);
      EXPECT_LT(difference(gradients(2, dtype, config), whole), tolerance);
    }
}

TEST(Accumulation, IsTheSameWithExpertsToo) {
  for (const auto& [dtype, tolerance] : {std::pair{at::kDouble, 1e-12}, {at::kFloat, 1e-5}}) {
    SCOPED_TRACE(dtype);
    const auto cut = [&](int64_t rows) { return gradients(rows, dtype, {}, {}, "qwen3_moe"); };
    const auto whole = cut(8);
    EXPECT_LT(difference(cut(1), whole), tolerance);
    EXPECT_LT(difference(cut(4), whole), tolerance);
  }
}

TEST(Accumulation, AMicroBatchWithNothingToLearnChangesNothing) {
  Ids masked = EngineRows().batch(3, 2);
  masked.targets = masked.targets.clone().fill_(ops::kIgnoreIndex);
  const TrainConfig config;
  const auto without = gradients(2, at::kDouble, config),
             with = gradients(2, at::kDouble, config, {masked, masked});
  for (size_t i = 0; i < with.size(); ++i) EXPECT_TRUE(at::equal(with[i], without[i]));
}

TEST(Accumulation, NothingToLearnAtAllChangesNothing) {
  for (const auto norm : {LossNorm::kGlobal, LossNorm::kMicro}) {
    auto model = make_model(engine_model(), 3);
    TrainConfig config;
    config.accumulate = 2, config.loss_norm = norm;
    EngineFixture f(*model, config, at::kFloat);
    const Tensor before = model->parameters().all()[0].value.detach().clone();
    for (int i = 0; i < 2; ++i) f.add(EngineRows().batch(0, 1));
    f.pass(true, false);
    f.pass(false, true);
    EXPECT_EQ(f.sum(LossBuffer::kSkipped), 1);
    EXPECT_TRUE(at::equal(before, model->parameters().all()[0].value)) << norm;
  }
}

// By hand: the mean of each micro-batch, and the mean of those.
TEST(Accumulation, MicroIsTheMeanOfMeans) {
  TrainConfig config;
  config.loss_norm = LossNorm::kMicro, config.accumulate = 4;
  const EngineRows data;
  auto model = make_model(engine_model(), 3);
  model->parameters().to(at::kCPU, at::kDouble);
  Tensor total;
  for (int64_t first = 0; first < kEngineRows; first += 2) {
    const auto ids = data.batch(first, 2);
    const Tensor mean = loss_of(*model, {ids.inputs, ids.targets}).objective / ids.supervised();
    total = total.defined() ? total + mean : mean;
  }
  (total / 4).backward();
  std::vector<Tensor> expected;
  for (const auto& value : model->parameters().values()) expected.push_back(value.grad());
  EXPECT_LT(difference(gradients(2, at::kDouble, config), expected), 1e-12);
}

/// A model whose balance loss is the mean of its embedding: its gradient is the same at every element.
struct Balanced : LanguageModel {
  Tensor embedding;
  Balanced() : LanguageModel(engine_model(), 1) {
    embedding =
        parameters_.add("embedding", {kEngineVocab, 4}, {Init::kNormal, 0.1}, ParameterRole::kEmbedding);
  }
  Forward forward(const Tensor& ids, const Pass& pass) override {
    Forward out{embedding.index_select(0, ids.flatten()).view({ids.size(0), ids.size(1), 4})};
    if (pass.training) out.balance = embedding.mean() * ids.size(0);
    return out;
  }
  Head head() const override { return {embedding}; }
};

TEST(Accumulation, BalanceIsWeighedAsTheLossesAre) {
  const EngineRows data;
  for (const auto norm : {LossNorm::kGlobal, LossNorm::kMicro}) {
    TrainConfig config;
    config.loss_norm = norm, config.accumulate = 4;
    Balanced trained;
    // Counts differ, and the first has nothing to learn.
    const std::vector<Ids> batches{data.batch(0, 1), data.batch(1, 1), data.batch(2, 3), data.batch(5, 2)};
    const Tensor with = EngineFixture(trained, config, at::kFloat).gradients(batches)[0];
    // The same without the balance, by hand.
    Balanced model;
    Tensor objective;
    double count = 0, balance_sum = 0;
    for (size_t i = 1; i < batches.size(); ++i) {
      const auto tokens = static_cast<double>(batches[i].supervised());
      const auto rows = static_cast<double>(batches[i].inputs.size(0));  // what the balance's gradient is
      const bool global = config.loss_norm == LossNorm::kGlobal;
      const Tensor part = loss_of(model, {batches[i].inputs, batches[i].targets},
                                  {.scale = at::full({}, global ? 1 : 1 / tokens / 4, at::kDouble)})
                              .objective;
      objective = objective.defined() ? objective + part : part;
      count += tokens, balance_sum += global ? rows * tokens : rows / 4;
    }
    objective.backward();
    const double divisor = config.loss_norm == LossNorm::kGlobal ? count : 1;
    const Tensor balance = with - model.embedding.grad() / divisor;
    EXPECT_NEAR(balance.mean().item<double>(), balance_sum / divisor / (kEngineVocab * 4), 1e-6) << norm;
    EXPECT_LT((balance - balance.mean()).abs().max().item<double>(), 1e-6) << norm;
  }
}

TEST(StepEngine, ANonFiniteGradientChangesNothingButTheCount) {
  for (const auto optimizer : {OptimizerKind::kAdamw, OptimizerKind::kMuon}) {
    auto model = make_model(engine_model(), 3);
    TrainConfig config;
    config.optimizer = optimizer;
    EngineFixture f(*model, config, at::kFloat);
    const EngineRows data;
    const auto state = [&] {
      std::vector<Tensor> all;
      for (const auto& [name, tensor] : f.optimizer.weights()) all.push_back(tensor.clone());
      for (const auto& [name, tensor] : f.optimizer.state()) all.push_back(tensor.clone());
      return all;
    };
    f.add(data.batch(0, 4));
    f.pass(true, true);
    EXPECT_EQ(f.sum(LossBuffer::kSkipped), 0);
    f.buffer.finish(1);
    const auto before = state();
    Tensor weight = model->parameters().find("final_norm")->value.detach();
    const float good = weight[0].item<float>();
    weight[0] = NAN;
    f.add(data.batch(4, 4));
    f.pass(true, true);
    weight[0] = good;
    EXPECT_EQ(f.sum(LossBuffer::kSkipped), 1);
    const auto after = state();
    for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i])) << optimizer << i;
  }
}

TEST(StepEngine, SumsBySourceAndCorrectTokensAreMadeOnMetricStepsAlone) {
  auto model = make_model(engine_model(), 3);
  EngineFixture f(*model, {}, at::kFloat, at::kCPU, 10, /*sources=*/2);
  const EngineRows data;
  f.add(data.batch(0, 8));
  f.pass(true, true, /*metrics=*/false);
  EXPECT_EQ(f.buffer.by_source().sum().item<double>(), 0);
  f.buffer.finish(1);
  f.add(data.batch(0, 8));
  f.pass(true, true, /*metrics=*/true);
  const Tensor sums = f.buffer.by_source();
  EXPECT_NEAR(sums[0][0].item<double>(), f.sum(LossBuffer::kLoss), 1e-4);
  EXPECT_EQ(sums[1][0].item<double>(), f.sum(LossBuffer::kTokens));
  EXPECT_EQ(sums[2][0].item<double>(), f.sum(LossBuffer::kCorrect));
  EXPECT_EQ(sums.select(1, 1).sum().item<double>(), 0) << "no row is of the second source";
}

TEST(StepEngine, ThePartsOfAStepAddUp) {
  auto model = make_model(engine_model(), 3);
  EngineFixture f(*model, {}, at::kFloat);
  const EngineRows data;
  f.engine.restart_clock();
  const double start = f.sum(LossBuffer::kClock);
  for (int64_t step = 1; step <= 3; ++step) {
    f.add(data.batch(0, 8));
    f.pass(true, true);
    f.buffer.finish(step);
  }
  const double end = f.sum(LossBuffer::kClock);
  Syncs syncs;
  f.buffer.extract(syncs);
  double sum = 0;
  for (const StepSums& step : f.buffer.arrived(0))
    for (int part = LossBuffer::kIdle; part <= LossBuffer::kUpdate; ++part) {
      EXPECT_GE(step[part], 0);
      sum += step[part];
    }
  EXPECT_NEAR(sum, end - start, 1e-6);
  EXPECT_GT(sum, 0);
}

Batch batch_of(std::vector<int32_t>& inputs, std::vector<int32_t>& targets, std::vector<uint8_t>& mask,
               std::vector<int32_t>& sources) {
  Batch batch;
  batch.index = 7, batch.rows = 2, batch.length = 3;
  batch.inputs = inputs.data(), batch.targets = targets.data(), batch.loss_mask = mask.data();
  batch.sources = sources.data();
  return batch;
}

TEST(CheckIds, NamesTheIdAndWhereItIs) {
  std::vector<int32_t> inputs{0, 1, 2, 3, 4, 5}, targets{1, 2, 3, 4, 5, 0}, sources{0, 1};
  std::vector<uint8_t> mask{1, 1, 1, 1, 0, 1};
  const auto names = [](int64_t row) { return row == 1 ? "'code.txt', line 9" : "'books.txt', line 1"; };
  check_ids(batch_of(inputs, targets, mask, sources), 6, names);
  const auto message = [&](int64_t vocab) {
    return error_of(ExitCode::kData,
                    [&] { check_ids(batch_of(inputs, targets, mask, sources), vocab, names); });
  };
  EXPECT_NE(message(5).find("token id 5 at position 2 of row 1 of micro-batch 7 ('code.txt', line 9)"),
            std::string::npos)
      << message(5);
  inputs[1] = -1;
  EXPECT_NE(message(6).find("token id -1"), std::string::npos);
  inputs[1] = 1, targets[4] = 1000;
  check_ids(batch_of(inputs, targets, mask, sources), 6, names);  // masked: never read
  targets[3] = 1000;
  EXPECT_NE(message(6).find("1000"), std::string::npos);
}

}  // namespace
}  // namespace tightloop
