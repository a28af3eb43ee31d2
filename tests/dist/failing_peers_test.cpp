// One of four processes fails: the others end with its sentence and its exit code.
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "dist/agreement.h"
#include "dist/fault.h"
#include "dist/processes.h"
#include "dist/several.h"

namespace tightloop::testing {
namespace {

using std::chrono::milliseconds;

constexpr int kWorld = 4;

fs::path test_folder() { return std::getenv("TIGHTLOOP_TEST_FOLDER"); }
int own_rank() { return std::atoi(std::getenv("RANK")); }

/// What a process would end with.
void keep_last_words(const Error& error) {
  write_file_whole(test_folder() / fmt::format("said-{}", own_rank()),
                   fmt::format("{} {}", static_cast<int>(error.code()), error.what()));
}

/// As the verb does it: whatever the work throws, all say the same.
template <class Work>
void end_with_last_words(Work&& work, const Processes::Timing& timing = {.beat = milliseconds(100)}) {
  Processes processes(rendezvous_from_environment(), timing);
  EXPECT_EQ(processes.sum(1.0), kWorld);
  try {
    work(processes);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::exception& error) {
    keep_last_words(processes.fail(error));
  }
}

/// What the processes but `killed` ended with, which is the same for all.
std::string same_last_words(const Environment& environment = {}, int killed = -1, int signal = SIGKILL) {
  TempFolder folder;
  auto children = start_children(folder, kWorld, environment);
  if (killed >= 0) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const auto ready = [&](int rank) { return fs::exists(folder / fmt::format("ready-{}", rank)); };
    for (int rank = 0; rank < kWorld; ++rank)
      while (!ready(rank) && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(milliseconds(5));
    children[static_cast<size_t>(killed)].kill(signal);
  }
  std::string words;
  for (int rank = 0; rank < kWorld; ++rank) {
    if (rank == killed) continue;
    auto& child = children[static_cast<size_t>(rank)];
    const auto code = child.wait(std::chrono::seconds(60));
    EXPECT_TRUE(code == 0) << "rank " << rank << " ended with " << code.value_or(-1) << ":\n"
                           << child.output();
    const auto file = folder / fmt::format("said-{}", rank);
    if (!fs::exists(file)) {
      ADD_FAILURE() << "rank " << rank << " said nothing:\n" << child.output();
      continue;
    }
    const auto own = read_file(file);
    if (words.empty()) words = own;
    EXPECT_EQ(own, words) << "rank " << rank;
  }
  return words;
}

void be_ready() { write_file_whole(test_folder() / fmt::format("ready-{}", own_rank()), ""); }

TEST(FailingPeers, AllSayTheSentenceOfTheOneThatFailed) {
  if (!in_child()) {
    EXPECT_EQ(same_last_words(), "3 rank 2 of 4 (host " + host_name() + "): planted in line 7");
    return;
  }
  end_with_last_words([](Processes& processes) {
    if (processes.rank() == 2) throw data_error("planted in line {}", 7);
    processes.sum(1.0);
  });
}

TEST(FailingPeers, TheSentenceOfRank0IsHeardThoughItServesTheStore) {
  if (!in_child()) {
    EXPECT_EQ(same_last_words(), "4 rank 0 of 4 (host " + host_name() + "): the disk is full");
    return;
  }
  end_with_last_words([](Processes& processes) {
    if (processes.main()) throw checkpoint_error("the disk is full");
    processes.barrier();
  });
}

TEST(FailingPeers, OutOfMemoryIsADeviceErrorForAll) {
  if (!in_child()) {
    const auto words = same_last_words();
    EXPECT_CONTAINS(words, "5 rank 3 of 4 (host " + host_name() + "): this machine is out of memory");
    return;
  }
  end_with_last_words([](Processes& processes) {
    if (processes.rank() == 3) throw std::bad_alloc();
    processes.sum(1.0);
  });
}

TEST(FailingPeers, OfSeveralThatFailTheFirstCountsForAll) {
  if (!in_child()) {
    const auto words = same_last_words();
    EXPECT_CONTAINS(words, "of 4 (host " + host_name() + "): planted in rank");
    return;
  }
  end_with_last_words([](Processes& processes) {
    throw Error(ExitCode::kData, fmt::format("planted in rank {}", processes.rank()));
  });
}

TEST(FailingPeers, WhatAllFindTogetherIsNobodysInParticular) {
  if (!in_child()) {
    EXPECT_EQ(same_last_words(), "1 the loss rose");
    return;
  }
  end_with_last_words([](Processes&) { throw SharedError(ExitCode::kFailure, "the loss rose"); });
}

TEST(FailingPeers, WhatTheOthersMeetBecauseOfTheFirstDoesNotHideIt) {
  if (!in_child()) {
    EXPECT_EQ(same_last_words(), "3 rank 1 of 4 (host " + host_name() + "): planted");
    return;
  }
  end_with_last_words([](Processes& processes) {
    if (processes.rank() == 1) throw data_error("planted");
    try {
      processes.sum(1.0);
    } catch (const Error&) {
      throw std::runtime_error("something else that follows from it");
    }
  });
}

TEST(FailingPeers, AKilledOneIsNamedTheSameByAll) {
  if (!in_child()) {
    const auto words = same_last_words({}, /*killed=*/2);
    EXPECT_CONTAINS(words, "1 rank 2 of 4 (host " + host_name() + ") does not answer any more");
    return;
  }
  end_with_last_words([](Processes& processes) {
    be_ready();
    while (true) processes.sum(1.0);
  });
}

TEST(FailingPeers, AStoppedOneIsNamedTheSameByAll) {
  if (!in_child()) {
    const auto words = same_last_words({}, /*killed=*/1, SIGSTOP);
    EXPECT_CONTAINS(words, "1 rank 1 of 4 (host " + host_name() + ") does not answer any more");
    return;
  }
  end_with_last_words([](Processes& processes) {
    be_ready();
    while (true) processes.sum(1.0);
  });
}

TEST(FailingPeers, TheDeathOfRank0IsNamedTheSameByAll) {
  if (!in_child()) {
    const auto words = same_last_words({}, /*killed=*/0);
    EXPECT_CONTAINS(words, "1 rank 0 of 4 (host " + host_name() + "), which serves the processes' store,");
    return;
  }
  end_with_last_words([](Processes& processes) {
    be_ready();
    while (true) processes.sum(1.0);
  });
}

// Reductions start from within backward: what they throw comes out of it as it is.
TEST(FailingPeers, AnErrorWithinBackwardIsTheSame) {
  if (!in_child()) {
    EXPECT_EQ(same_last_words(), "3 rank 2 of 4 (host " + host_name() + "): planted in backward");
    return;
  }
  end_with_last_words([](Processes& processes) {
    const at::Tensor weight = at::ones({3}, at::kFloat).set_requires_grad(true);
    weight.register_hook([&](const at::Tensor& gradient) {
      if (processes.rank() == 2) throw data_error("planted in backward");
      at::Tensor sum = gradient.clone();
      processes.all_reduce(sum).wait();
      return sum;
    });
    (weight * weight).sum().backward();
  });
}

TEST(FailingPeers, CallsOfAnotherThreadEndTheSame) {
  if (!in_child()) {
    EXPECT_EQ(same_last_words(), "3 rank 2 of 4 (host " + host_name() + "): planted");
    return;
  }
  end_with_last_words([](Processes& processes) {
    if (processes.rank() == 2) throw data_error("planted");
    std::exception_ptr thrown;
    std::thread([&] {
      try {
        processes.sum(1.0);
      } catch (...) {
        thrown = std::current_exception();
      }
    }).join();
    if (thrown) std::rethrow_exception(thrown);
  });
}

TEST(FailingPeers, OneThatIsInAComputationIsEndedByTheLastResort) {
  if (!in_child()) {
    const auto words = same_last_words({}, /*killed=*/3);
    EXPECT_CONTAINS(words, "1 rank 3 of 4 (host " + host_name() + ") does not answer any more");
    return;
  }
  Processes processes(rendezvous_from_environment(), {.beat = milliseconds(100)}, [](const Error& why) {
    keep_last_words(why);
    ::_exit(0);
  });
  be_ready();
  std::this_thread::sleep_for(std::chrono::minutes(2));  // asks nobody
  ADD_FAILURE() << "it was not ended";
}

// A thread that helps to save hears of the end first.
TEST(FailingPeers, TheLastResortIsUsedThoughAnotherThreadHasNoticed) {
  if (!in_child()) {
    const auto words = same_last_words({}, /*killed=*/3);
    EXPECT_CONTAINS(words, "1 rank 3 of 4 (host " + host_name() + ") does not answer any more");
    return;
  }
  Processes processes(rendezvous_from_environment(), {.beat = milliseconds(100)}, [](const Error& why) {
    keep_last_words(why);
    ::_exit(0);
  });
  std::thread([&] {
    try {
      processes.posted("nothing");
    } catch (const Error&) {  // as a save that fails
    }
  }).detach();
  be_ready();
  std::this_thread::sleep_for(std::chrono::seconds(30));  // asks nobody
  ADD_FAILURE() << "it was not ended";
}

// A save that is under way is worth waiting for.
TEST(FailingPeers, TheLastResortWaitsForWorkThatIsWorthIt) {
  if (!in_child()) {
    const auto words = same_last_words({}, /*killed=*/3);
    EXPECT_CONTAINS(words, "0 the work was done");
    return;
  }
  std::atomic<bool> done = false;
  Processes processes(rendezvous_from_environment(), {.beat = milliseconds(50)}, [&](const Error&) {
    keep_last_words(Error(ExitCode::kOk, done ? "the work was done" : "too early"));
    ::_exit(0);
  });
  {
    const Processes::Unhurried unhurried(processes);
    be_ready();
    std::this_thread::sleep_for(
        std::chrono::seconds(5));  // the fault is known and the last resort due after 3
    done = true;
  }
  std::this_thread::sleep_for(std::chrono::minutes(1));
  ADD_FAILURE() << "it was not ended";
}

TEST(FailingPeers, OneThatNeverArrivesIsNamedByAll) {
  if (!in_child()) {
    EXPECT_CONTAINS(same_last_words(), "1 rank 4 of 5 has not arrived at 127.0.0.1:");
    return;
  }
  auto rendezvous = *rendezvous_from_environment();
  rendezvous.world = 5;
  try {
    // The first one to give up decides, and says how long it has waited.
    Processes processes(rendezvous, {.join = milliseconds(1500 + 1000 * own_rank())});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    keep_last_words(error);
  }
}

TEST(FailingPeers, WhoFailsBeforeTheOthersHaveArrivedIsHeard) {
  if (!in_child()) {
    EXPECT_EQ(same_last_words(), "2 rank 1 of 4 (host " + host_name() + "): no such setting");
    return;
  }
  if (own_rank() == 3) std::this_thread::sleep_for(milliseconds(700));
  try {
    Processes processes(rendezvous_from_environment(), {.beat = milliseconds(100)});
    if (own_rank() == 1) throw processes.fail(usage_error("no such setting"));
    processes.barrier();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    keep_last_words(error);
  }
}

TEST(FailingPeers, FactsThatDifferAreNamedByAll) {
  if (!in_child()) {
    EXPECT_EQ(
        same_last_words(),
        fmt::format("2 the processes were not started alike: rank 3 of 4 (host {0}) has train.lr 0.3, rank 0 "
                    "of 4 (host {0}) has 0.1. Start all of them with the same program, recipe, settings and "
                    "data files.",
                    host_name()));
    return;
  }
  end_with_last_words([](Processes& processes) {
    require_agreement(processes, {{"version", "1"}, {"train.lr", "0.1"}});
    require_agreement(processes, {{"version", "1"}, {"train.lr", processes.rank() == 3 ? "0.3" : "0.1"}});
  });
}

TEST(Processes, GatherTextsOfAnyLength) {
  if (!in_child()) return expect_success(3);
  Processes processes;
  const auto text_of = [](int rank) {
    return std::string(static_cast<size_t>(1000 * rank * rank), 'a' + rank);
  };
  const auto texts = processes.gather(text_of(processes.rank()));
  ASSERT_EQ(texts.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(texts[static_cast<size_t>(rank)], text_of(rank));
  EXPECT_EQ(processes.gather(""), std::vector<std::string>(3));
}

TEST(Processes, SeeEachOthersPace) {
  if (!in_child()) return expect_success(2);
  Processes processes(rendezvous_from_environment(), {.beat = milliseconds(20)});
  processes.tell_pace(0.25 * (1 + processes.rank()));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (processes.paces() != std::vector<double>{0.25, 0.5} && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(processes.paces(), (std::vector<double>{0.25, 0.5}));
}

}  // namespace
}  // namespace tightloop::testing
