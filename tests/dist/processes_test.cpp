#include "dist/processes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "core/random.h"
#include "dist/process_group.h"
#include "dist/several.h"
#include "ops/compare.h"
#include "train/engine/loss.h"

namespace tightloop::testing {
namespace {

using at::Tensor;
using std::chrono::milliseconds;

/// Sets torchrun's variables for a scope, all others of them unset.
class Variables {
 public:
  explicit Variables(const Environment& environment) {
    for (const char* name : kNames)
      if (environment.contains(name)) ::setenv(name, environment.at(name).c_str(), 1);
  }
  ~Variables() {
    for (const char* name : kNames) ::unsetenv(name);
  }

 private:
  static constexpr const char* kNames[] = {"RANK",        "WORLD_SIZE",  "LOCAL_RANK",
                                           "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"};
};

Environment of_torchrun() {
  return {{"RANK", "3"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"MASTER_ADDR", "a.b"},
          {"MASTER_PORT", "29500"}};
}

TEST(Rendezvous, IsReadFromTheEnvironment) {
  EXPECT_FALSE(rendezvous_from_environment());
  auto environment = of_torchrun();
  {
    Variables set(environment);
    const auto rendezvous = rendezvous_from_environment();
    ASSERT_TRUE(rendezvous);
    EXPECT_EQ(rendezvous->rank, 3);
    EXPECT_EQ(rendezvous->world, 8);
    EXPECT_EQ(rendezvous->local_rank, 1);
    EXPECT_EQ(rendezvous->address, "a.b");
    EXPECT_EQ(rendezvous->port, 29500);
    EXPECT_FALSE(rendezvous->store_runs);
  }
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  Variables set(environment);
  EXPECT_TRUE(rendezvous_from_environment()->store_runs);
}

TEST(Rendezvous, PartsOfItAreAUsageError) {
  for (const auto& [name, value] : of_torchrun()) {
    auto environment = of_torchrun();
    environment.erase(name);
    Variables set(environment);
    const auto message = error_of(ExitCode::kUsage, [] { rendezvous_from_environment(); });
    EXPECT_NE(message.find("but not " + name), std::string::npos) << message;
  }
}

TEST(Rendezvous, NonsenseIsAUsageError) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"RANK", "8"},       {"RANK", "-1"},     {"RANK", "one"},          {"RANK", "1x"},
      {"WORLD_SIZE", "0"}, {"WORLD_SIZE", ""}, {"MASTER_PORT", "70000"}, {"LOCAL_RANK", "4"}};
  for (const auto& [name, value] : cases) {
    auto environment = of_torchrun();
    environment[name] = value;
    Variables set(environment);
    const auto message = error_of(ExitCode::kUsage, [] { rendezvous_from_environment(); });
    EXPECT_NE(message.find(name), std::string::npos) << message;
  }
}

TEST(Processes, AloneEveryCallLeavesThingsAsTheyAre) {
  Processes processes;
  EXPECT_EQ(processes.rank(), 0);
  EXPECT_EQ(processes.world(), 1);
  EXPECT_TRUE(processes.main());
  const auto tensor = at::arange(5, at::kDouble);
  processes.sum_({tensor});
  processes.broadcast(tensor);
  processes.barrier();
  processes.check();
  EXPECT_TRUE(at::equal(tensor, at::arange(5, at::kDouble)));
  EXPECT_EQ(processes.sum(2.5), 2.5);
  EXPECT_EQ(processes.sum(int64_t{7}), 7);
  EXPECT_EQ(processes.broadcast_value(3.0), 3.0);
  EXPECT_EQ(processes.broadcast_text("own"), "own");
  EXPECT_FALSE(processes.any(false));
  EXPECT_TRUE(processes.any(true));
}

TEST(Processes, AddUpTensorsOfEveryKind) {
  if (!in_child()) return expect_success(2);
  Processes processes;
  const double rank = processes.rank();
  std::vector<Tensor> tensors, wanted;
  const auto add = [&](const Tensor& base) {
    tensors.push_back(base + rank);
    wanted.push_back(base * 2 + 1);
  };
  for (int i = 0; i < 200; ++i) {
    const int64_t size = i % 50;
    for (const auto dtype : {at::kDouble, at::kFloat, at::kLong, at::kBFloat16}) add(at::arange(size, dtype));
  }
  for (const auto dtype : {at::kFloat, at::kDouble}) add(at::full({3, 3'000'000}, 2.0, dtype));  // > a bucket
  add(at::arange(12, at::kFloat).view({3, 4}));
  tensors.back() = tensors.back().t().contiguous().t();  // not dense
  ASSERT_FALSE(tensors.back().is_contiguous());
  tensors.push_back(at::arange(3, at::kFloat).requires_grad_());
  wanted.push_back(at::arange(3, at::kFloat) * 2);
  std::vector<const void*> places;
  for (const auto& tensor : tensors) places.push_back(tensor.const_data_ptr());
  processes.sum_(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(at::equal(tensors[i].detach(), wanted[i].to(tensors[i].scalar_type()))) << i;
    EXPECT_EQ(tensors[i].const_data_ptr(), places[i]) << "in place";
  }
}

TEST(Processes, ShareNumbers) {
  if (!in_child()) return expect_success(3);
  Processes processes;
  const int rank = processes.rank();
  EXPECT_EQ(processes.world(), 3);
  EXPECT_EQ(processes.main(), rank == 0);
  EXPECT_EQ(processes.sum(0.5 * rank), 1.5);
  const int64_t large = (int64_t{1} << 60) + 1;  // doubles cannot hold it
  EXPECT_EQ(processes.sum(rank == 2 ? large : int64_t{0}), large);
  EXPECT_TRUE(processes.any(rank == 1));
  EXPECT_FALSE(processes.any(false));
  EXPECT_EQ(processes.broadcast_value(10.0 + rank), 10.0);
  EXPECT_EQ(processes.broadcast_value(10.0 + rank, 2), 12.0);
  EXPECT_EQ(processes.broadcast_text(rank == 0 ? "said" : "not heard"), "said");
  EXPECT_EQ(processes.broadcast_text(rank == 2 ? std::string(100'000, 'x') : "", 2),
            std::string(100'000, 'x'));
  EXPECT_EQ(processes.broadcast_text(rank == 1 ? "" : "not heard", 1), "");
  EXPECT_EQ(processes.gather(std::string(static_cast<size_t>(rank), 'y')),
            (std::vector<std::string>{"", "y", "yy"}));
  auto square = at::full({2, 3}, rank, at::kLong).t();
  processes.broadcast(square, 1);
  EXPECT_TRUE(at::equal(square, at::full({3, 2}, 1, at::kLong)));
  // The same bits in every process, though the order of a sum matters.
  const auto sum = random_tensor({1000}, at::kFloat, static_cast<uint64_t>(rank));
  processes.sum_({sum});
  const auto of_main = sum.clone();
  processes.broadcast(of_main);
  EXPECT_TRUE(at::equal(sum, of_main));
}

TEST(Processes, ABarrierHoldsUntilTheLastHasCome) {
  if (!in_child()) return expect_success(2);
  const fs::path file = fs::path(std::getenv("TIGHTLOOP_TEST_FOLDER")) / "late";
  Processes processes;
  if (processes.rank() == 1) {
    std::this_thread::sleep_for(milliseconds(200));
    write_file_whole(file, "here");
  }
  processes.barrier();
  EXPECT_TRUE(fs::exists(file));
}

TEST(Processes, HalfOfTheRowsEachGiveTheGradientOfAll) {
  if (!in_child()) return expect_success(2);
  constexpr int64_t kRows = 8, kLength = 6, kVocab = 21;
  const auto inputs = at::empty({kRows, kLength}, at::kLong),
             targets = at::empty({kRows, kLength}, at::kLong);
  Random random(4);
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t t = 0; t < kLength; ++t) {
      inputs[row][t] = static_cast<int64_t>(random.below(kVocab));
      const auto target = static_cast<int64_t>(random.below(kVocab));
      targets[row][t] = t < row ? target : ops::kIgnoreIndex;  // the halves differ in supervised tokens
    }
  ModelConfig sizes;
  sizes.family = "llama", sizes.layers = 2, sizes.width = 16, sizes.heads = 2, sizes.ffn = 24;
  sizes.vocab_size = kVocab;
  sizes.resolve(0, kLength);
  struct Sums {
    std::vector<Tensor> gradients;
    double loss = 0;
    int64_t tokens = 0;
  };
  const auto pass = [&](int64_t first, int64_t count) {
    const auto model = make_model(sizes, /*seed=*/3);
    model->parameters().to(at::kCPU, at::kDouble);
    const auto part = targets.narrow(0, first, count);
    const auto loss = loss_of(*model, {inputs.narrow(0, first, count), part});
    loss.objective.backward();
    Sums sums{{}, loss.sum.item<double>(), (part != ops::kIgnoreIndex).sum().item<int64_t>()};
    for (const auto& value : model->parameters().values()) sums.gradients.push_back(value.grad());
    return sums;
  };
  Processes processes;
  auto ours = pass(processes.rank() * kRows / 2, kRows / 2);
  processes.sum_(ours.gradients);
  const auto tokens = processes.sum(ours.tokens);
  const auto whole = pass(0, kRows);
  ASSERT_EQ(tokens, whole.tokens);
  ASSERT_NE(ours.tokens * 2, whole.tokens);
  const auto count = static_cast<double>(tokens);
  EXPECT_NEAR(processes.sum(ours.loss) / count, whole.loss / count, 1e-12);
  for (size_t i = 0; i < ours.gradients.size(); ++i) {
    const auto wanted = whole.gradients[i] / count;
    EXPECT_GT(wanted.abs().max().item<double>(), 0);
    EXPECT_LT(relative_error(ours.gradients[i] / count, wanted), 1e-12);
  }
}

TEST(Processes, ASlowPeerIsNotADeadOne) {
  if (!in_child()) return expect_success(2);
  Processes processes(rendezvous_from_environment(), {.beat = milliseconds(20), .missed = 15});
  if (processes.rank() == 1)
    std::this_thread::sleep_for(milliseconds(1500));  // five times what a dead one gets
  EXPECT_EQ(processes.sum(1.0), 2.0);
}

// torchrun's own store outlives the processes. On several machines TORCHELASTIC_RESTART_COUNT tells starts
// not apart: a machine whose processes were well counts none when another one has lost its own.
TEST(Processes, ARestartMeetsAtAStoreThatWasKept) {
  if (in_child()) {
    if (std::getenv("TIGHTLOOP_TEST_LONE")) {
      Processes processes(rendezvous_from_environment(), {.join = std::chrono::minutes(1)});
      return;
    }
    const bool first = std::string(std::getenv("RANK")) == "0";
    ::setenv("TORCHELASTIC_RESTART_COUNT", first ? "1" : "0", 1);
    Processes processes;
    EXPECT_EQ(processes.sum(int64_t{1}), 2);
    return;
  }
  c10d::TCPStoreOptions options;
  options.port = 0, options.isServer = true, options.waitWorkers = false;
  const c10d::TCPStore store("127.0.0.1", options);
  Environment environment{{"MASTER_ADDR", "127.0.0.1"},
                          {"MASTER_PORT", std::to_string(store.getPort())},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                          {"TORCHELASTIC_RUN_ID", "a"}};
  const TempFolder folder;
  for (int start = 0; start < 3; ++start) {
    SCOPED_TRACE(start);
    expect_success(2, environment);
    // One of a start that never became whole.
    auto lone = environment;
    lone["WORLD_SIZE"] = "2", lone["TIGHTLOOP_TEST_LONE"] = "1";
    lone["RANK"] = lone["LOCAL_RANK"] = std::to_string(start % 2);
    Child child(folder / "lone", lone);
    EXPECT_FALSE(child.wait(milliseconds(1500))) << child.output();
  }
  environment["TORCHELASTIC_RUN_ID"] = "b";
  expect_success(2, environment);
}

TEST(Processes, TheLastToLeaveIsWaitedFor) {
  if (!in_child()) return expect_success(2);
  Processes processes;
  if (processes.rank() == 1) std::this_thread::sleep_for(milliseconds(500));
  processes.check();  // nobody has left
}

/// What the children of last_words do.
void be_interrupted(const Processes::Timing& timing = {}) {
  const std::string folder = std::getenv("TIGHTLOOP_TEST_FOLDER"), busy = std::getenv("TIGHTLOOP_TEST_BUSY");
  const int victim = std::atoi(std::getenv("TIGHTLOOP_TEST_VICTIM"));
  Processes processes(rendezvous_from_environment(), timing);
  EXPECT_EQ(processes.sum(1.0), 2.0);
  write_file_whole(fs::path(folder) / ("ready-" + std::to_string(processes.rank())), "");
  const auto message = error_of(ExitCode::kFailure, [&] {
    if (processes.rank() == victim) std::this_thread::sleep_for(std::chrono::minutes(1));
    if (busy == "computing") std::this_thread::sleep_for(milliseconds(600));
    processes.sum(1.0);
  });
  error_of(ExitCode::kFailure, [&] { processes.barrier(); });  // nor does anything else work then
  std::fprintf(stderr, "last words: %s\n", message.c_str());
}

TEST(Processes, AKilledPeerEndsAWaitingCall) {
  if (in_child()) return be_interrupted();
  const auto words = last_words(1, SIGKILL, "waiting");
  EXPECT_CONTAINS(words, "last words: rank 1 of 2 (host " + host_name() + ") does not answer any more");
  EXPECT_CONTAINS(words, "--resume");
}

TEST(Processes, AKilledPeerEndsTheNextCall) {
  if (in_child()) return be_interrupted({.beat = milliseconds(100)});
  EXPECT_CONTAINS(last_words(1, SIGKILL, "computing"), "last words: rank 1 of 2");
}

TEST(Processes, TheDeathOfRank0IsNoticedToo) {
  if (in_child()) return be_interrupted({.beat = milliseconds(100)});
  EXPECT_CONTAINS(last_words(0, SIGKILL, "waiting"), "last words: rank 0");
}

// As if its machine had lost power: no connection is closed.
TEST(Processes, APeerThatFallsSilentIsNoticed) {
  if (in_child()) return be_interrupted({.beat = milliseconds(50)});
  EXPECT_CONTAINS(last_words(1, SIGSTOP, "waiting"),
                  "last words: rank 1 of 2 (host " + host_name() + ") does not answer any more");
}

TEST(Processes, ASilentRank0IsNoticed) {
  if (in_child()) return be_interrupted({.beat = milliseconds(50)});
  EXPECT_CONTAINS(last_words(0, SIGSTOP, "waiting"),
                  "last words: rank 0 of 2 (host " + host_name() + "), which serves the processes' store,");
}

// scontrol suspend, or a machine that pauses.
TEST(Processes, ThatAreAllStoppedForAWhileGoOn) {
  if (in_child()) {
    const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
    Processes processes(rendezvous_from_environment(), {.beat = milliseconds(150)});
    for (int i = 0; i < 40; ++i) {
      EXPECT_EQ(processes.sum(1.0), 2.0);
      std::this_thread::sleep_for(milliseconds(50));
      if (i == 5) write_file_whole(folder / ("ready-" + std::to_string(processes.rank())), "");
    }
    return;
  }
  TempFolder folder;
  auto children = start_children(folder, 2);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while ((!fs::exists(folder / "ready-0") || !fs::exists(folder / "ready-1")) &&
         std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(milliseconds(5));
  for (auto& child : children) child.kill(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(4));  // a peer is dead after 1.8
  for (auto& child : children) child.kill(SIGCONT);
  for (auto& child : children) {
    const auto code = child.wait(std::chrono::seconds(30));
    EXPECT_TRUE(code == 0) << code.value_or(-1) << ":\n" << child.output();
  }
}

TEST(Processes, APeerThatEndsWithAnErrorThatItDoesNotTellIsNamed) {
  if (!in_child()) return expect_success(2);
  if (std::string(std::getenv("RANK")) == "1") {
    error_of(ExitCode::kData, [] {
      Processes processes;
      throw data_error("planted");
    });
    return;
  }
  Processes processes;
  const auto message = error_of(ExitCode::kFailure, [&] { processes.sum(1.0); });
  EXPECT_CONTAINS(message, "rank 1 of 2 (host " + host_name() + "): has ended with an error");
}

TEST(Processes, AFailedShareOfANumberIsNotTheEnd) {
  if (!in_child()) return expect_success(2);
  if (std::string(std::getenv("RANK")) == "1") {
    error_of(ExitCode::kData, [] {
      Processes processes;
      throw data_error("planted");
    });
    return;
  }
  Processes processes;
  EXPECT_EQ(processes.broadcast_value(7.0, /*root=*/1), 7.0);
}

TEST(Processes, APeerThatNeverComesIsNamed) {
  const Rendezvous rendezvous{
      .rank = 0, .world = 2, .address = "127.0.0.1", .port = static_cast<uint16_t>(free_port())};
  const auto message =
      error_of(ExitCode::kFailure, [&] { Processes(rendezvous, {.join = milliseconds(300)}); });
  EXPECT_CONTAINS(message, "rank 1 of 2 has not arrived");
}

TEST(Processes, AnAddressWhereNobodyIsIsASentence) {
  const Rendezvous rendezvous{
      .rank = 1, .world = 2, .address = "127.0.0.1", .port = static_cast<uint16_t>(free_port())};
  const auto message =
      error_of(ExitCode::kFailure, [&] { Processes(rendezvous, {.join = milliseconds(300)}); });
  EXPECT_CONTAINS(message, "rank 1 of 2 could not meet the others at 127.0.0.1");
}

class GpuGroup : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(Each, GpuGroup, ::testing::Values("cuda"),
                         [](const auto& info) { return std::string(info.param); });

// A world of one: more need more GPUs.
TEST_P(GpuGroup, AddsUpAndBroadcasts) {
  const auto group = make_gpu_group(c10::make_intrusive<c10d::HashStore>(), 0, 1);
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong}) {
    const auto before = at::arange(1000, at::TensorOptions(dtype).device(device));
    std::vector<Tensor> list{before.clone()};
    group->allreduce(list)->wait();
    EXPECT_TRUE(at::equal(list[0], before));
    group->broadcast(list)->wait();
    EXPECT_TRUE(at::equal(list[0], before));
  }
  group->abort();
}

}  // namespace
}  // namespace tightloop::testing
