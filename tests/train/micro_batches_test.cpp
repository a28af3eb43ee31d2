#include "train/micro_batches.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/scalar_tensor.h>

#include "core/random.h"
#include "ops/compare.h"
#include "support.h"

namespace tightloop {
namespace {

using at::Tensor;
using testing::error_of;

constexpr int64_t kRows = 8, kLength = 6, kVocab = 21;

ModelConfig small_model(const std::string& family = "llama") {
  ModelConfig sizes;
  sizes.family = family, sizes.experts = 3, sizes.experts_per_token = 2, sizes.expert_ffn = 16;
  sizes.balance_coef = 0;
  sizes.layers = 1, sizes.width = 16, sizes.heads = 2, sizes.ffn = 24, sizes.vocab_size = kVocab;
  sizes.resolve(0, kLength);
  return sizes;
}

/// Rows of which the n-th has n supervised tokens (row 0: none), and their ids.
struct Rows {
  Tensor inputs = at::empty({kRows, kLength}, at::kLong), targets = at::empty({kRows, kLength}, at::kLong);
  Rows() {
    Random random(4);
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t t = 0; t < kLength; ++t) {
        inputs[row][t] = static_cast<int64_t>(random.below(kVocab));
        const auto target = static_cast<int64_t>(random.below(kVocab));
        targets[row][t] = t < row ? target : ops::kIgnoreIndex;
      }
  }
  MicroBatch batch(int64_t first, int64_t count) const {
    const Tensor part = targets.narrow(0, first, count);
    return {{inputs.narrow(0, first, count), part}, (part != ops::kIgnoreIndex).sum().item<int64_t>()};
  }
};

/// Gradients of one step over the rows, `rows` at a time, divided as the optimizer would.
std::vector<Tensor> gradients(int64_t rows, at::ScalarType dtype, const TrainConfig& base,
                              std::vector<MicroBatch> extra = {}, const std::string& family = "llama") {
  const Rows data;
  auto model = make_model(small_model(family), /*seed=*/3);
  model->parameters().to(at::kCPU, dtype);
  TrainConfig config = base;
  std::vector<MicroBatch> batches = std::move(extra);
  for (int64_t first = 0; first < kRows; first += rows) batches.push_back(data.batch(first, rows));
  config.accumulate = static_cast<int64_t>(batches.size());
  Optimizer optimizer(model->parameters(), config, model->config(), dtype);
  size_t next = 0;
  const double divisor = accumulate_step(
      *model, optimizer, config, [&] { return batches[next++]; }, [](const auto&, const auto&) {});
  EXPECT_EQ(next, batches.size());
  std::vector<Tensor> result;
  for (const auto& gradient : optimizer.gradients()) result.push_back(gradient / divisor);
  return result;
}

double difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, testing::relative_error(a[i], b[i]));
  return most;
}

TEST(Accumulation, IsTheSameHoweverTheRowsAreCut) {
  for (const char* head : {"off", "on"})
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
  MicroBatch masked = Rows().batch(3, 2);
  masked.batch.targets_BT = masked.batch.targets_BT.clone().fill_(ops::kIgnoreIndex);
  masked.supervised = 0;
  const TrainConfig config;
  const auto without = gradients(2, at::kDouble, config),
             with = gradients(2, at::kDouble, config, {masked, masked});
  for (size_t i = 0; i < with.size(); ++i) EXPECT_TRUE(at::equal(with[i], without[i]));
}

TEST(Accumulation, NothingToLearnAtAllGivesNoGradient) {
  auto model = make_model(small_model(), 3);
  TrainConfig config;
  config.accumulate = 2;
  Optimizer optimizer(model->parameters(), config, model->config(), at::kFloat);
  for (const char* norm : {"global", "micro"}) {
    config.loss_norm = norm;
    const double divisor = accumulate_step(
        *model, optimizer, config, [] { return Rows().batch(0, 1); },
        [](const auto&, const auto&) { ADD_FAILURE() << "there is no loss"; });
    EXPECT_EQ(divisor, 0);
    EXPECT_TRUE(optimizer.gradients().empty());
  }
}

// By hand: the mean of each micro-batch, and the mean of those.
TEST(Accumulation, MicroIsTheMeanOfMeans) {
  TrainConfig config;
  config.loss_norm = "micro", config.accumulate = 4;
  const Rows data;
  auto model = make_model(small_model(), 3);
  model->parameters().to(at::kCPU, at::kDouble);
  Tensor total;
  for (int64_t first = 0; first < kRows; first += 2) {
    const auto micro = data.batch(first, 2);
    const auto loss = loss_of(*model, micro.batch);
    const Tensor mean = loss.objective / loss.count;
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
  Balanced() : LanguageModel(small_model(), 1) {
    embedding = parameters_.add("embedding", {kVocab, 4}, {Init::kNormal, 0.1});
  }
  Forward forward(const Tensor& ids, const Pass& pass) override {
    Forward out{embedding.index_select(0, ids.flatten()).view({ids.size(0), ids.size(1), 4})};
    if (pass.training) out.balance = embedding.mean() * ids.size(0);
    return out;
  }
  Head head() const override { return {embedding}; }
};

TEST(Accumulation, BalanceEntersAsTheMeanOverMicroBatches) {
  const Rows data;
  for (const char* norm : {"global", "micro"}) {
    TrainConfig config;
    config.loss_norm = norm, config.accumulate = 4;
    Balanced trained;
    Optimizer optimizer(trained.parameters(), config, trained.config(), at::kFloat);
    // Counts differ, and the first has nothing to learn.
    const std::vector<MicroBatch> batches{data.batch(0, 1), data.batch(1, 1), data.batch(2, 3),
                                          data.batch(5, 2)};
    size_t next = 0;
    int64_t rows = 0;
    const double divisor = accumulate_step(
        trained, optimizer, config, [&] { return batches[next++]; },
        [&](const MicroBatch& micro, const BatchLoss& loss) {
          EXPECT_TRUE(loss.balance.defined());
          rows += micro.batch.inputs_BT.size(0);
        });
    EXPECT_EQ(rows, 6) << "of the three that were useful";
    const Tensor with = optimizer.gradients()[0] / divisor;
    // The same without the balance, by hand.
    Balanced model;
    const std::vector<MicroBatch> useful{data.batch(1, 1), data.batch(2, 3), data.batch(5, 2)};
    int64_t count = 0;
    for (const auto& micro : useful) count += micro.supervised;
    for (const auto& micro : useful) {
      const int64_t divided = config.loss_norm == "micro" ? micro.supervised * 4 : count;
      const auto scale = at::scalar_tensor(1.0 / static_cast<double>(divided), at::kFloat);
      loss_of(model, micro.batch, {.scale = scale}).objective.backward();
    }
    const Tensor balance = with - model.embedding.grad();
    const double mean = config.loss_norm == "global" ? 6.0 / 3 : 6.0 / 4;
    EXPECT_NEAR(balance.mean().item<double>(), mean / (kVocab * 4), 1e-6) << norm;
    EXPECT_LT((balance - balance.mean()).abs().max().item<double>(), 1e-6) << norm;
  }
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
  const std::vector<std::string> names{"books", "code"};
  check_ids(batch_of(inputs, targets, mask, sources), 6, names);
  const auto message = [&](int64_t vocab) {
    return error_of(ExitCode::kData,
                    [&] { check_ids(batch_of(inputs, targets, mask, sources), vocab, names); });
  };
  EXPECT_NE(message(5).find("token id 5 at position 2 of row 1 of micro-batch 7 (source 'code')"),
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
