#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "dist/processes.h"
#include "dist/several.h"
#include "ops/compare.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

/// What a process puts in: whole numbers, so that sums are exact in bf16 too.
Tensor input_of(int rank, int64_t size, at::ScalarType dtype = at::kFloat) {
  return (at::arange(size, at::kLong) * (rank + 3) % 11 - rank).to(dtype);
}

Tensor sum_of_inputs(int world, int64_t size, at::ScalarType dtype = at::kFloat) {
  Tensor sum = at::zeros({size}, at::kLong);
  for (int rank = 0; rank < world; ++rank) sum += input_of(rank, size, at::kLong);
  return sum.to(dtype);
}

void expect_right_values(Processes& processes, at::Device device = at::kCPU) {
  const int rank = processes.rank(), world = processes.world();
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong}) {
    for (const int64_t each : {1, 5, 1000}) {
      SCOPED_TRACE(each);
      const int64_t all = each * world;
      const auto options = at::TensorOptions(dtype).device(device);
      const Tensor mine = input_of(rank, all, dtype).to(device);
      const Tensor sum = sum_of_inputs(world, all, dtype).to(device);
      const auto own = [&](const Tensor& whole) { return whole.narrow(0, rank * each, each); };

      const Tensor reduced = mine.clone();
      processes.all_reduce(reduced).wait();
      EXPECT_TRUE(at::equal(reduced, sum));

      const Tensor part = at::empty({each}, options), parts = mine.clone();
      processes.reduce_scatter(part, parts).wait();
      EXPECT_TRUE(at::equal(part, own(sum)));
      EXPECT_TRUE(at::equal(parts, mine)) << "left as it was";
      processes.reduce_scatter(own(parts), parts).wait();
      EXPECT_TRUE(at::equal(own(parts), own(sum))) << "into its own piece";

      const Tensor gathered = at::full({all}, 99, options);
      processes.all_gather(gathered, part).wait();
      EXPECT_TRUE(at::equal(gathered, sum));
      gathered.fill_(99);
      own(gathered).copy_(part);
      processes.all_gather(gathered, own(gathered)).wait();
      EXPECT_TRUE(at::equal(gathered, sum)) << "from its own piece";
    }
  }
}

TEST(Collectives, AloneGiveWhatTheyGet) {
  Processes processes;
  expect_right_values(processes);
}

TEST(Collectives, OfTwoProcesses) {
  if (!in_child()) return expect_success(2);
  Processes processes;
  expect_right_values(processes);
}

TEST(Collectives, OfThreeProcesses) {
  if (!in_child()) return expect_success(3);
  Processes processes;
  expect_right_values(processes);
}

TEST(Collectives, OfFourProcesses) {
  if (!in_child()) return expect_success(4);
  Processes processes;
  expect_right_values(processes);
}

// A sharded update depends on it: what each process has of a sum is what all would have had.
TEST(Collectives, ScatteredAndGatheredIsTheWholeSum) {
  if (!in_child()) return expect_success(3);
  Processes processes;
  const auto of = [](int rank) { return random_tensor({3000}, at::kFloat, static_cast<uint64_t>(rank)); };
  const Tensor mine = of(processes.rank());
  const Tensor sum = mine.clone(), part = at::empty({1000}, at::kFloat),
               whole = at::empty({3000}, at::kFloat);
  processes.all_reduce(sum).wait();
  processes.reduce_scatter(part, mine).wait();
  processes.all_gather(whole, part).wait();
  EXPECT_TRUE(at::equal(whole, of(0) + of(1) + of(2))) << "added up in the order of ranks";
  EXPECT_LT(relative_error(sum, whole), 1e-6);
}

TEST(Collectives, OfOneRoot) {
  if (!in_child()) return expect_success(3);
  Processes processes;
  for (const int root : {0, 2}) {
    const Tensor reduced = input_of(processes.rank(), 700);
    processes.reduce(reduced, root).wait();
    EXPECT_TRUE(processes.rank() != root || at::equal(reduced, sum_of_inputs(3, 700)));
    const Tensor sent = input_of(processes.rank(), 700);
    processes.start_broadcast(sent, root).wait();
    EXPECT_TRUE(at::equal(sent, input_of(root, 700)));
  }
  const Tensor parts = processes.gather(input_of(processes.rank(), 50));
  ASSERT_EQ(parts.defined(), processes.main());
  for (int rank = 0; parts.defined() && rank < 3; ++rank)
    EXPECT_TRUE(at::equal(parts[rank], input_of(rank, 50)));
  EXPECT_FALSE(processes.gather(at::empty({0})).defined() && !processes.main());
}

TEST(Collectives, ThatDoNotDivideAreRefusedBeforeTheyStart) {
  if (!in_child()) return expect_success(2);
  Processes processes;
  const Tensor seven = at::zeros({7}, at::kFloat), three = at::zeros({3}, at::kFloat);
  EXPECT_THROW(processes.reduce_scatter(three, seven).wait(), c10::Error);
  EXPECT_THROW(processes.all_gather(seven, three).wait(), c10::Error);
  EXPECT_THROW(processes.all_gather(at::zeros({6}, at::kDouble), three).wait(), c10::Error);
  EXPECT_THROW(processes.all_reduce(at::zeros({3, 2}, at::kFloat).t()).wait(), c10::Error);
  processes.all_reduce(at::zeros({0}, at::kFloat)).wait();
  EXPECT_EQ(processes.sum(1.0), 2.0);
}

TEST(Collectives, AreUnderWayTogetherAndWaitedForInAnyOrder) {
  if (!in_child()) return expect_success(3);
  Processes processes;
  const int rank = processes.rank();
  constexpr int64_t kEach = 50'000;
  std::vector<Tensor> results, wanted;
  std::vector<Pending> pending;
  for (int i = 0; i < 4; ++i) {
    results.push_back(input_of(rank, kEach + i));
    wanted.push_back(sum_of_inputs(3, kEach + i));
    pending.push_back(processes.all_reduce(results.back()));
    results.push_back(at::empty({kEach}, at::kFloat));
    wanted.push_back(sum_of_inputs(3, 3 * kEach).narrow(0, rank * kEach, kEach));
    pending.push_back(processes.reduce_scatter(results.back(), input_of(rank, 3 * kEach)));
    results.push_back(at::empty({3 * (10 + i)}, at::kFloat));
    wanted.push_back(at::cat({input_of(0, 10 + i), input_of(1, 10 + i), input_of(2, 10 + i)}));
    pending.push_back(processes.all_gather(results.back(), input_of(rank, 10 + i)));
  }
  for (size_t i = pending.size(); i-- > 0;) pending[(i + static_cast<size_t>(rank)) % pending.size()].wait();
  for (size_t i = 0; i < results.size(); ++i) EXPECT_TRUE(at::equal(results[i], wanted[i])) << i;
}

TEST(Collectives, AreWaitedForTwiceOrNotAtAll) {
  if (!in_child()) return expect_success(2);
  Pending late;
  {
    Processes processes;
    const Tensor sum = input_of(processes.rank(), 100);
    auto pending = processes.all_reduce(sum);
    pending.wait();
    pending.wait();
    EXPECT_TRUE(at::equal(sum, sum_of_inputs(2, 100)));
    auto moved = std::move(pending);
    moved.wait();
    if (processes.rank() == 0) {
      const auto dropped = processes.all_reduce(at::zeros({100'000}, at::kFloat));
    } else {
      processes.all_reduce(at::zeros({100'000}, at::kFloat)).wait();
    }
    EXPECT_EQ(processes.sum(1.0), 2.0);
    late = processes.all_reduce(sum);
  }
  EXPECT_THROW(late.wait(), c10::Error) << "the processes have parted";
}

TEST(Collectives, UnderWayEndWithWhoDied) {
  if (!in_child()) {
    const auto words = last_words(1, SIGKILL, "waiting");
    for (const char* which : {"all_reduce", "reduce_scatter", "all_gather"})
      EXPECT_CONTAINS(
          words, std::string(which) + ": rank 1 of 2 (host " + host_name() + ") does not answer any more");
    EXPECT_CONTAINS(words, "--resume");
    return;
  }
  const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
  Processes processes(rendezvous_from_environment(), {.beat = std::chrono::milliseconds(100)});
  EXPECT_EQ(processes.sum(1.0), 2.0);
  std::map<std::string, Pending> pending;
  const Tensor sum = at::zeros({10}, at::kFloat), part = at::zeros({5}, at::kFloat),
               whole = at::zeros({10}, at::kFloat);
  if (processes.rank() == 0) {
    pending["all_reduce"] = processes.all_reduce(sum);
    pending["reduce_scatter"] = processes.reduce_scatter(part, whole);
    pending["all_gather"] = processes.all_gather(whole, part);
  }
  write_file_whole(folder / ("ready-" + std::to_string(processes.rank())), "");
  if (processes.rank() == 1) std::this_thread::sleep_for(std::chrono::minutes(1));
  for (auto& [which, handle] : pending) {
    const auto message = error_of(ExitCode::kFailure, [&] { handle.wait(); });
    std::fprintf(stderr, "%s: %s\n", which.c_str(), message.c_str());
    EXPECT_EQ(error_of(ExitCode::kFailure, [&] { handle.wait(); }), message) << "and again";
  }
}

class GpuCollectives : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(Each, GpuCollectives, ::testing::Values("cuda"),
                         [](const auto& info) { return std::string(info.param); });

// NCCL in a world of one: more need more GPUs.
TEST_P(GpuCollectives, GiveWhatTheyGet) {
  Processes processes(Rendezvous{
      .address = "127.0.0.1", .port = static_cast<uint16_t>(free_port()), .run = {}, .group_of_one = true});
  expect_right_values(processes, device);
}

}  // namespace
}  // namespace tightloop::testing
