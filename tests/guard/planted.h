#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/random.h"
#include "data/batch/sample_order.h"
#include "support.h"
#include "train/run/checkpoint.h"
#include "train/run/run_folder.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop::testing {

/// A run on regular sentences, a row each, in which some rows are what is planted. Rows of the first pass are
/// lines of data.jsonl, in the order of the loader.
struct Planted {
  static constexpr int64_t kLines = 400;

  TempFolder folder;
  Recipe recipe = small_recipe();
  int64_t line = 0;  // of the first planted one, from 1

  /// `row`: which of the run's, from 0.
  Planted(int64_t row, const std::string& text, int64_t micro_batch = 1)
      : Planted(std::vector<int64_t>{row}, text, micro_batch) {}
  Planted(const std::vector<int64_t>& rows, const std::string& text, int64_t micro_batch) {
    recipe.data.source = DataSource::kJsonl, recipe.data.loss_after = "", recipe.data.seq_len = 40;
    recipe.data.holdout = 0;
    recipe.data.train = {(folder / "data.jsonl").string()},
    recipe.data.val = {(folder / "val.jsonl").string()};
    recipe.model.layers = 1, recipe.model.width = 16;
    recipe.train.micro_batch = micro_batch, recipe.train.lr = 1e-2;
    recipe.train.steps = kLines / micro_batch;
    std::vector<int64_t> lines;
    for (const int64_t row : rows)
      lines.push_back(
          static_cast<int64_t>(
              sample_at(row, kLines, static_cast<uint64_t>(recipe.train.seed), /*shuffle=*/true).sample) +
          1);
    line = lines.front();
    std::string data;
    Random random(3);
    const std::vector<std::string> animals{"cat", "dog", "cow", "hen", "pig"};
    for (int64_t i = 1; i <= kLines; ++i)
      data += nlohmann::json{{"text", std::ranges::count(lines, i) > 0
                                          ? text
                                          : fmt::format("the {} sat on the {} mat", animals[random.below(5)],
                                                        animals[random.below(5)])}}
                  .dump() +
              "\n";
    write_file(folder / "data.jsonl", data);
    write_file(folder / "val.jsonl", "{\"text\": \"the cow sat on the hen mat\"}\n");
  }

  RunFolder run(const std::string& name = "run") const { return RunFolder::create(folder / name, false); }
  std::string origin() const { return fmt::format("'{}', line {}", recipe.data.train[0], line); }
};

/// Letters that the sentences do not have.
inline std::string noise() {
  Random random(5);
  std::string text;
  for (int i = 0; i < 30; ++i) text += static_cast<char>('A' + random.below(26));
  return text;
}

inline std::vector<nlohmann::json> events_of(const RunFolder& run, const std::string& name) {
  std::vector<nlohmann::json> events;
  std::ifstream in(run.events());
  for (std::string line; std::getline(in, line);) {
    auto event = nlohmann::json::parse(line);
    if (event["event"] == name) events.push_back(std::move(event));
  }
  return events;
}

/// Changes a weight of the newest checkpoint, whose checksums fit afterwards.
template <class Edit>
void edit_weight(const RunFolder& run, const std::string& name, const Edit& edit) {
  const Checkpoint checkpoint = load_checkpoint(run.checkpoints());
  const auto copy = [](const Safetensors& file) {
    NamedTensors tensors;
    for (const auto& [key, tensor] : file.tensors) tensors.emplace_back(key, tensor.clone());
    return tensors;
  };
  NamedTensors weights = copy(checkpoint.weights);
  bool found = false;
  for (auto& [key, tensor] : weights)
    if (key == name) found = true, edit(tensor);
  ASSERT_TRUE(found) << name;
  save_checkpoint(run.checkpoints(), checkpoint.step, weights, copy(checkpoint.optimizer),
                  checkpoint.metadata);
}

/// Trains eight steps, saved at 4 and 8, and goes on at a rate that no weight survives.
inline void expect_a_stop_by_max_skips(Recipe recipe, const RunFolder& run) {
  recipe.train.save_steps = 4, recipe.train.stop_at = 8;
  Trainer(recipe, run).run();
  recipe.train.stop_at = 0, recipe.train.save_steps = 0;
  recipe.train.lr = 1e38, recipe.train.schedule = ScheduleKind::kConstant, recipe.train.max_skips = 5;
  Trainer trainer(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())});
  const auto message = error_of(ExitCode::kFailure, [&] { trainer.run(); });
  EXPECT_NE(message.find("The last good checkpoint is that of step 8: 'tightloop train --resume"),
            std::string::npos)
      << message;
  EXPECT_EQ(checkpoint_steps(run.checkpoints()), (std::vector<int64_t>{4, 8})) << "good ones stay";
}

}  // namespace tightloop::testing
