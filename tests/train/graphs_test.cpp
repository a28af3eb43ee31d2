// Captured passes against passes that run as they are.
#include <ATen/ops/equal.h>
#include <c10/util/Exception.h>

#include "core/random.h"
#include "dist/several.h"
#include "train/engine_fixture.h"
#include "train/recorded_device.h"
#include "train/run/checkpoint.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

constexpr int64_t kRows = 2, kLength = 6, kVocab = 21;

/// One process that goes the way of several.
Rendezvous group_of_one() {
  return {.rank = 0,
          .world = 1,
          .local_rank = 0,
          .address = "127.0.0.1",
          .port = static_cast<uint16_t>(free_port()),
          .group_of_one = true};
}

std::unique_ptr<LanguageModel> graphs_model() {
  ModelConfig sizes;
  sizes.layers = 1, sizes.width = 16, sizes.heads = 2, sizes.ffn = 24, sizes.vocab_size = kVocab;
  sizes.resolve(0, kLength);
  return make_model(sizes, /*seed=*/3);
}

Ids ids_of(uint64_t seed) { return random_ids(seed, kRows, kLength, kVocab); }

/// Weights and state of the optimizer, and what was counted. (A CPU's operators add up the losses by host
/// code, which no replay runs.)
std::vector<Tensor> all_of(const EngineFixture& f) {
  std::vector<Tensor> all;
  for (const auto& [name, tensor] : f.optimizer.weights()) all.push_back(tensor.clone());
  for (const auto& [name, tensor] : f.optimizer.state()) all.push_back(tensor.clone());
  for (const auto column : {LossBuffer::kTokens, LossBuffer::kPasses, LossBuffer::kGradNorm})
    all.push_back(f.buffer.column(column).clone());
  return all;
}

/// Steps over the same micro-batches, for a recorded graph reads what it was given first.
void steps(EngineFixture& f, int64_t count) {
  for (int64_t step = 1; step <= count; ++step)
    for (int64_t i = 0; i < f.config.accumulate; ++i) {
      f.add(ids_of(static_cast<uint64_t>(i)));
      f.pass(i == 0, i + 1 == f.config.accumulate);
    }
}

void expect_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << "tensor " << i;
}

TEST(Graphs, SeveralProcessesFindTheirGradientsAfterAReplay) {
  for (const auto optimizer : {OptimizerKind::kAdamw, OptimizerKind::kMuon})
    for (const auto dtype : {at::kFloat, at::kBFloat16})
      for (const bool set_to_none : {true, false})
        for (const int64_t accumulate : {1, 2, 3}) {
          SCOPED_TRACE(::testing::Message() << optimizer << " " << dtype << " accumulate " << accumulate
                                            << " set_to_none " << set_to_none);
          TrainConfig config;
          config.accumulate = accumulate, config.optimizer = optimizer, config.set_to_none = set_to_none;
          const auto plain_model = graphs_model(), model = graphs_model();
          EngineFixture plain(*plain_model, config, dtype);
          steps(plain, 6);
          RecordedDevice device;
          EngineFixture graphs(*model, config, dtype, at::kCPU, 1000, 1, group_of_one(), &device);
          steps(graphs, 6);
          EXPECT_GT(graphs.engine.graphs().replayed, 0);
          EXPECT_EQ(graphs.engine.graphs().captured, std::min<int64_t>(accumulate, 3));
          expect_equal(all_of(graphs), all_of(plain));
        }
}

TEST(Graphs, AloneChangeNothing) {
  for (const int64_t accumulate : {1, 2}) {
    TrainConfig config;
    config.accumulate = accumulate;
    const auto plain_model = graphs_model(), model = graphs_model();
    EngineFixture plain(*plain_model, config, at::kFloat);
    steps(plain, 5);
    RecordedDevice device;
    EngineFixture graphs(*model, config, at::kFloat, at::kCPU, 1000, 1, {}, &device);
    steps(graphs, 5);
    EXPECT_GT(graphs.engine.graphs().replayed, 0);
    expect_equal(all_of(graphs), all_of(plain));
  }
}

// Captured graphs go on writing to gradients that are kept (train.set_to_none false).
TEST(Graphs, DroppedGradientsKeepTheirMemoryWhereTheyAreNotSetToNone) {
  TrainConfig config;
  config.set_to_none = false;
  const auto model = graphs_model();
  EngineFixture f(*model, config, at::kFloat);
  steps(f, 1);
  const Tensor& value = model->parameters().all().front().value;
  ASSERT_TRUE(value.grad().defined());
  const void* memory = value.grad().const_data_ptr();
  value.mutable_grad().fill_(1);
  f.optimizer.drop_gradients();
  ASSERT_TRUE(value.grad().defined());
  EXPECT_EQ(value.grad().const_data_ptr(), memory);
  EXPECT_EQ(value.grad().abs().sum().item<double>(), 0);
}

/// A device that has no memory for graphs while something else holds it.
struct FullDevice : RecordedDevice {
  bool full = true;
  std::unique_ptr<Graph> capture(const std::function<void()>& work) override {
    TORCH_CHECK_WITH(OutOfMemoryError, !full, "planted");
    return RecordedDevice::capture(work);
  }
};

TEST(Graphs, AreNotGivenUpWhileThereIsRoomToBeMade) {
  const auto model = graphs_model();
  FullDevice device;
  EngineFixture f(*model, {}, at::kFloat, at::kCPU, 1000, 1, {}, &device);
  f.make_room = [&] { return std::exchange(device.full, false); };
  steps(f, 4);
  EXPECT_GT(f.engine.graphs().replayed, 0);
  const auto other_model = graphs_model();
  FullDevice full;
  EngineFixture g(*other_model, {}, at::kFloat, at::kCPU, 1000, 1, {}, &full);
  steps(g, 4);
  EXPECT_EQ(g.engine.graphs().captured, 0) << "nothing to be made";
}

TEST(Graphs, APassThatDoesNotFitWaitsForRoom) {
  const auto model = graphs_model();
  EngineFixture f(*model, {}, at::kFloat);
  steps(f, 1);
  bool full = true;
  f.make_room = [&] { return std::exchange(full, false); };
  const WatchedOperators watched([&](const std::string& name) {
    if (name == "aten::mm") TORCH_CHECK_WITH(OutOfMemoryError, !full, "planted in ", name);
  });
  EXPECT_NO_THROW(steps(f, 1));
  EXPECT_FALSE(full);
}

/// A step in which the `fails`-th operator finds no memory, once.
struct Interrupted {
  std::vector<Tensor> result;
  std::string failed, error;  // the operator; how it ended, where it did not go on
};
Interrupted interrupted_step(const TrainConfig& config, int64_t fails) {
  const auto model = graphs_model();
  EngineFixture f(*model, config, at::kFloat);
  steps(f, 1);
  Interrupted interrupted;
  int64_t calls = 0;
  const WatchedOperators watched([&](const std::string& name) {
    if (calls++ != fails) return;
    interrupted.failed = name;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "planted in ", name);
  });
  try {
    steps(f, 1);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kDevice);
    interrupted.error = error.what();
  }
  interrupted.result = all_of(f);
  return interrupted;
}

TEST(OutOfMemory, AnywhereInAStepNothingIsAddedTwice) {
  for (const auto optimizer : {OptimizerKind::kAdamw, OptimizerKind::kMuon})
    for (const int64_t accumulate : {1, 2}) {
      SCOPED_TRACE(::testing::Message() << optimizer << " accumulate " << accumulate);
      TrainConfig config;
      config.accumulate = accumulate, config.optimizer = optimizer;
      config.set_to_none = accumulate == 1 || config.optimizer == OptimizerKind::kAdamw;
      const auto whole = interrupted_step(config, -1);
      int64_t went_on = 0, ended = 0;
      for (int64_t fails = 0;; ++fails) {
        Interrupted step;
        try {
          step = interrupted_step(config, fails);
        } catch (const c10::OutOfMemoryError&) {  // before or after the pass: the feed's or the buffer's
          continue;
        }
        if (step.failed.empty()) break;
        if (!step.error.empty()) {
          ++ended;
          EXPECT_NE(step.error.find("in the middle of an update"), std::string::npos) << step.error;
          continue;
        }
        ++went_on;
        SCOPED_TRACE(::testing::Message() << "operator " << fails << ", " << step.failed);
        expect_equal(step.result, whole.result);
        if (HasFailure()) return;
      }
      EXPECT_GT(went_on, 100) << "forward, backward and what an update works out beforehand";
      EXPECT_GT(ended, 0);
    }
}

class GraphsOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
  }
};

TEST_F(GraphsOnGpu, OfSeveralProcessesAtWorldSize1EqualThePlainPath) {
  for (const auto precision : {Precision::kBf16, Precision::kFp16})
    for (const auto optimizer : {OptimizerKind::kAdamw, OptimizerKind::kMuon})
      for (const int64_t accumulate : {1, 2}) {
        if (precision == Precision::kFp16 && optimizer == OptimizerKind::kMuon) continue;
        SCOPED_TRACE(::testing::Message() << precision << " " << optimizer << " accumulate " << accumulate);
        const TempFolder folder;
        auto recipe = small_recipe();
        recipe.train.device = "cuda", recipe.train.precision = precision, recipe.train.deterministic = true;
        recipe.train.steps = 200, recipe.train.accumulate = accumulate, recipe.train.optimizer = optimizer;
        recipe.train.embedding_lr = 0.002, recipe.train.lr_scale = 0.1;  // muon's
        recipe.train.logging_steps = 1;
        recipe.dist.reduce = ReduceDtype::kCompute;  // sums in fp32 round later than the plain path does
        const auto plain_run = RunFolder::create(folder / "plain", false),
                   several_run = RunFolder::create(folder / "several", false);
        auto plain_recipe = recipe;
        plain_recipe.train.graph = AutoSwitch::kOff;
        const auto plain = Trainer(plain_recipe, plain_run).run();
        Processes processes(group_of_one());
        ASSERT_TRUE(processes.several());
        const auto several = Trainer(recipe, several_run, {.processes = &processes}).run();
        ASSERT_EQ(plain.losses.size(), 200u);
        EXPECT_EQ(several.losses, plain.losses);
        const auto a = load_checkpoint(several_run.checkpoints()),
                   b = load_checkpoint(plain_run.checkpoints());
        for (const auto& [name, tensor] : b.weights.tensors)
          EXPECT_TRUE(at::equal(a.weights.tensors.at(name), tensor)) << name;
        for (const auto& [name, tensor] : b.optimizer.tensors)
          EXPECT_TRUE(at::equal(a.optimizer.tensors.at(name), tensor)) << name;
      }
}

}  // namespace
}  // namespace tightloop::testing
