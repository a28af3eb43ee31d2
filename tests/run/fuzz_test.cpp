// What a run keeps, harmed. The suite makes a short run of each; TIGHTLOOP_FUZZ_RUNS=250000 a long one.
#include "fuzz.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/files.h"
#include "core/hash.h"
#include "support.h"
#include "train/run/checkpoint.h"
#include "train/run/checkpoint_list.h"
#include "train/run/checkpoint_name.h"
#include "train/run/run_settings.h"
#include "train/watch/run_curves.h"
#include "train/watch/run_follower.h"
#include "train/watch/run_report.h"
#include "train/watch/view_text.h"

namespace tightloop {
namespace {

using testing::fuzz;
using testing::fuzz_runs;
using testing::TempFolder;
using testing::write_file;

const std::vector<std::string> kWords{"\"",
                                      "{",
                                      "}",
                                      "[",
                                      "]",
                                      ",",
                                      ":",
                                      "null",
                                      "-1",
                                      "1e999",
                                      "9223372036854775807",
                                      "-9223372036854775808",
                                      "18446744073709551615",
                                      "\"NaN\"",
                                      "\n",
                                      "\xff",
                                      "\xed\xa0\x80",
                                      "\\ud800",
                                      "\"global_step\":",
                                      "\"event\":\"resumed\"",
                                      "\"time\":",
                                      "\"files\":",
                                      "\"metadata\":",
                                      "\"best\":",
                                      "\"step\":"};

nlohmann::json state_of_a_checkpoint() {
  return {{"format", 2},
          {"step", 10},
          {"metadata",
           {{"consumed", 40},
            {"passing", 10},
            {"evaluated", 10},
            {"best", {{"step", 10}, {"loss", 2.5}, {"by", "loss"}}},
            {"settings", "train:\n  steps: 20\n"},
            {"rollbacks", {{{"from", 9}, {"to", 5}, {"consumed", 20}}}}}},
          {"files",
           {{"model.safetensors", {{"bytes", 4}, {"xxh3", "00"}}},
            {"optimizer.safetensors", {{"bytes", 4}, {"xxh3", "00"}}}}}};
}

/// Its checksum made good, as somebody does who knows the format, so that what it protects is reached.
std::string sealed(nlohmann::json state) {
  try {
    state.erase("xxh3");
    state["xxh3"] = hex64(hash64(state.dump()));
    return state.dump();
  } catch (const nlohmann::json::exception&) {  // no object
    return "";
  }
}

struct RunOfTwo {
  TempFolder folder;
  const RunFolder run{folder / "run"};
  const fs::path checkpoint = run.checkpoints() / "step-00000010";

  RunOfTwo() {
    fs::create_directories(checkpoint);
    write_file(run.config(), "train:\n  steps: 20\n  keep_every: 10\n");
    write_file(checkpoint / "state.json", sealed(state_of_a_checkpoint()));
    for (const char* name : {"model.safetensors", "optimizer.safetensors"})
      write_file(checkpoint / name, "abcd");
  }
};

TEST(RunFuzz, StateOfACheckpoint) {
  const RunOfTwo it;
  uint64_t read = 0;
  fuzz({sealed(state_of_a_checkpoint())}, fuzz_runs(2000), kWords, [&](std::string& bytes, Random& random) {
    if (random.below(2)) {
      auto state = nlohmann::json::parse(bytes, nullptr, /*allow_exceptions=*/false);
      if (state.is_object() && random.below(2)) state["step"] = 10, state["format"] = 1 + random.below(2);
      bytes = sealed(std::move(state));
    }
    write_file(it.checkpoint / "state.json", bytes);
    try {
      const auto state = read_checkpoint_state(it.run.checkpoints(), 10);
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ExitCode::kCheckpoint) << error.what();
    }
    try {
      load_checkpoint(it.run.checkpoints());
      ADD_FAILURE() << "its tensors are none";
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ExitCode::kCheckpoint) << error.what();
    }
    best_step_of(it.run.checkpoints());
  });
  EXPECT_GT(read, 0u);
}

TEST(RunFuzz, MarksOfVerification) {
  const RunOfTwo it;
  const std::string mark =
      R"({"time":1,"files":{"model.safetensors":{"bytes":4,"xxh3":"00","written":1},"o":{}}})";
  const std::string state = sealed(state_of_a_checkpoint());
  fuzz({mark, state}, fuzz_runs(500), kWords, [&](std::string& bytes, Random& random) {
    const bool damaged = random.below(2);
    auto parsed = nlohmann::json::parse(bytes, nullptr, /*allow_exceptions=*/false);
    write_file(it.checkpoint / "state.json", damaged ? sealed(std::move(parsed)) : state);
    write_file(it.checkpoint / "verified.json", damaged ? mark : bytes);
    for (const auto& facts : list_checkpoints(it.run))
      ASSERT_NE(facts.health, CheckpointHealth::kVerified) << bytes;
  });
}

TEST(RunFuzz, Settings) {
  const RunOfTwo it;
  const nlohmann::json metadata{{"settings", "train:\n  steps: 20\n  lr: 0.001\n"}};
  const std::string yaml = "train:\n  steps: 20\n  lr: 0.001\ndata:\n  train: [\"a b\", 'c']\n";
  uint64_t taken = 0;
  fuzz({yaml + "# xxh3 0123456789abcdef of the lines above.\n", "{train: {steps: 1}, model: {layers: 2}}"},
       fuzz_runs(500),
       {"\n", ": ", "- ", "&a ", "*a",    "!!binary ", "|\n",     ">",     "{", "}",    "[",
        "]",  "'",  "\"", "\t",  "%YAML", "---\n",     "# xxh3 ", "1e999", "~", "\xff", "<<: "},
       [&](std::string& bytes, Random&) {
         write_file(it.run.config(), bytes);
         values_in(bytes);
         has_settings_of_a_run(it.run);
         try {
           read_settings(it.run, metadata);
           ++taken;
         } catch (const Error& error) {
           ASSERT_EQ(error.code(), ExitCode::kUsage) << error.what();
         }
       });
  EXPECT_GT(taken, 0u);
}

TEST(RunFuzz, MetricsEventsAndSamples) {
  const TempFolder folder;
  const RunFolder run(folder / "run");
  fs::create_directories(run.checkpoints());
  write_file(run.config(), "train:\n  steps: 100\n");
  const std::vector<std::string> seeds{
      R"({"time":1763386000.1,"global_step":10,"training/loss":3.5,"perf/step_time":0.1,"perf/tokens_per_second":9})"
      "\n"
      R"({"time":1763386001.1,"global_step":20,"training/loss":"NaN","training/grad_norm_by_layer":[[1,2],[3]]})"
      "\n"
      R"({"time":1763386002.1,"global_step":30,"eval/loss":2.5,"eval/accuracy":0.5})"
      "\n",
      R"({"time":1763386000.0,"global_step":0,"event":"started","text":"begins","steps":100,"machine":{"cpu":"x"}})"
      "\n"
      R"({"time":1763386002.0,"global_step":20,"event":"saved","text":"step 20 saved","seconds":0.1})"
      "\n"
      R"({"time":1763386003.0,"global_step":10,"event":"resumed","text":"after step 10","steps":100})"
      "\n",
      R"({"time":1763386002.5,"global_step":20,"prompt":"the","text":"the cat","tokens":[1,2],"scores":[0.5,0.25]})"
      "\n"};
  const auto files = {run.metrics(), run.events(), run.samples()};
  fuzz(seeds, fuzz_runs(1000), kWords, [&](std::string& bytes, Random& random) {
    for (const fs::path& file : files) write_file(file, seeds[&file - files.begin()]);
    const fs::path& harmed = files.begin()[random.below(files.size())];
    write_file(harmed, bytes.substr(0, random.below(bytes.size() + 1)));
    RunFollower follower(run.root());
    RunReport report(run.root());
    RunView view;
    for (int again = 0; again < 2; ++again) {  // and what comes, or goes, while it is followed
      follower.read(view);
      for (const std::string& line : view_lines(view, 20 + static_cast<int>(random.below(80)), 1.8e9, true))
        ASSERT_EQ(line.find('\n'), std::string::npos);
      view.json(1.8e9).dump();
      script_json(report.read());
      write_file(harmed, bytes);
    }
    summary_of(run.root());
  });
}

// A disk or a copy that harms the newest checkpoint, at a thousand places: the one before is taken.
TEST(RunFuzz, AFlippedBitOrACutAnywhereIsNoticed) {
  const TempFolder folder;
  const NamedTensors weights{{"a", at::arange(300, at::kFloat)}, {"b", at::ones({7, 5})}};
  const NamedTensors moments{{"a.m", at::arange(300, at::kFloat)}, {"b.m", at::zeros({7, 5})}};
  for (const int64_t step : {5, 10})
    save_checkpoint(folder.path(), step, weights, moments, state_of_a_checkpoint()["metadata"]);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const fs::path file = folder / "step-00000010" / name;
    const std::string whole = read_file(file);
    for (size_t i = 0; i < 334; ++i) {
      const size_t at = i * (whole.size() - 1) / 333;  // the first byte and the last one, too
      std::string harmed = whole;
      if (i % 3 == 2)
        harmed.resize(at);
      else
        harmed[at] ^= static_cast<char>(1 << i % 8);
      write_file(file, harmed);
      ASSERT_EQ(load_checkpoint(folder.path()).step, 5) << name << ", byte " << at;
      const auto why = testing::error_of(ExitCode::kCheckpoint, [&] { load_checkpoint(folder.path(), 10); });
      ASSERT_NE(why.find(name), std::string::npos) << why;
    }
    write_file(file, whole);
  }
  EXPECT_EQ(load_checkpoint(folder.path()).step, 10);
}

// Values are copied and written by recursion: what nests deeply is refused before it is one.
TEST(RunFuzz, WhatNestsAMillionLevelsEndsInASentence) {
  const RunOfTwo it;
  const std::string deep = std::string(1000000, '[') + std::string(1000000, ']');
  write_file(it.checkpoint / "state.json", R"({"format":2,"step":10,"xxh3":"0","files":)" + deep + "}");
  testing::error_of(ExitCode::kCheckpoint, [&] { read_checkpoint_state(it.run.checkpoints(), 10); });
  write_file(it.checkpoint / "state.json", sealed(state_of_a_checkpoint()));
  write_file(it.checkpoint / "verified.json", R"({"files":)" + deep + "}");
  EXPECT_EQ(list_checkpoints(it.run).at(0).health, CheckpointHealth::kUnverified);
  for (const auto& file : {it.run.metrics(), it.run.events(), it.run.samples()})
    write_file(file, R"({"global_step":7,"a":)" + deep + "}\n");
  EXPECT_EQ(summary_of(it.run.root()).latest.size(), 0u);
  RunReport report(it.run.root());
  script_json(report.read());
}

}  // namespace
}  // namespace tightloop
