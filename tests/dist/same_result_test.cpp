// A step's result does not depend on how its micro-batches are split over processes.
// $TIGHTLOOP_EQUALITY=full: every case by every split, with a table of what was found.
#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "dist/several.h"
#include "ops/compare.h"
#include "train/run/checkpoint.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop::testing {
namespace {

constexpr int64_t kPasses = 8;  // micro-batches of a step, in all processes

bool full() {
  const char* wanted = std::getenv("TIGHTLOOP_EQUALITY");
  return wanted && wanted == std::string("full");
}
int64_t steps() { return full() ? 50 : 20; }

/// How a step's micro-batches are divided.
struct Split {
  int world;
  bool always;  // else with $TIGHTLOOP_EQUALITY=full
  std::string name() const { return fmt::format("{}x{}", world, kPasses / world); }
};

using Lines = std::vector<nlohmann::json>;

struct Case {
  const char* name;
  std::function<void(Recipe&, const fs::path& data)> change;
  /// Whether the training did what the case is about.
  std::function<bool(const Lines&)> is_about = [](const Lines&) { return true; };
  double losses = 1e-6, weights = 1e-4;  // relative errors that rounding accounts for
};

bool any_line(const Lines& lines, const std::function<bool(const nlohmann::json&)>& is) {
  return std::ranges::any_of(lines, is);
}

void pairs(Recipe& recipe) {
  recipe.data = {};
  recipe.data.source = DataSource::kToyPairs, recipe.data.seq_len = 32, recipe.data.batch_tokens = 96;
  recipe.tokenizer.type = TokenizerType::kUnigram, recipe.tokenizer.vocab_size = 120;
  recipe.model.family = "seq2seq", recipe.train.label_smoothing = 0.1;
  // Rounding may put a value on the other side of relu's corner, where the gradient jumps.
  recipe.model.activation = Activation::kGelu;
}

const std::vector<Case>& cases() {
  const auto nothing = [](Recipe&, const fs::path&) {};
  static const std::vector<Case> all{
      {"plain", nothing},
      {"clipping", [](Recipe& r, const fs::path&) { r.train.clip = 0.05; },
       [](const Lines& lines) {
         return any_line(lines, [](const auto& line) { return line.value("training/grad_norm", 0.0) > 0.5; });
       }},
      {"experts",
       [](Recipe& r, const fs::path&) {
         r.model.family = "qwen3_moe", r.model.experts = 4, r.model.experts_per_token = 2;
         r.model.balance_coef = 0.05;
       },
       [](const Lines& lines) { return lines.back().value("training/balance_loss", 0.0) > 0; }},
      {"packed", [](Recipe& r, const fs::path&) { r.data.rows = RowKind::kPack, r.data.seq_len = 48; }},
      {"empty micro-batches",
       [](Recipe& r, const fs::path& data) {
         r.data.source = DataSource::kText, r.data.documents = DocumentEnd::kBlankLine;
         r.data.train = {(data / "half-masked").string()}, r.data.holdout = 0;
         r.train.micro_batch = 1;
       },
       [](const Lines& lines) {
         const auto empty = lines.back().value("training/empty_batches", 0.0);  // so far
         return empty > steps() && empty < steps() * (kPasses - 1);
       }},
      {"uneven end", [](Recipe& r, const fs::path&) { r.tasks.questions = 37; },
       [](const Lines& lines) { return lines.back().value("training/epoch", 0.0) > 3; }},
      {"lora", [](Recipe& r, const fs::path&) { r.lora.rank = 4; }},
      {.name = "fp16",
       .change = [](Recipe& r,
                    const fs::path&) { r.train.precision = Precision::kFp16, r.train.loss_scale = 1 << 24; },
       .is_about =
           [](const Lines& lines) {
             return any_line(lines,
                             [](const auto& line) { return line.value("training/skipped_steps", 0.0) > 0; });
           },
       // A master that differs in its last bit may be rounded to the next fp16 number.
       .losses = 1.0 / 2048},
      {.name = "muon",
       .change =
           [](Recipe& r, const fs::path&) {
             // Of three layers: with fewer the gradient of backout_scale is 0 but for rounding.
             r.model.family = "nanochat", r.model.layers = 3, r.model.width = 64, r.model.heads = 1;
             r.train.optimizer = OptimizerKind::kMuon, r.train.lr_scale = 0.1;
             r.data.loss_after = "";
           },
       .weights =
           2e-3},  // orthogonalization raises small singular values a thousandfold, with their rounding
      {"translator", [](Recipe& r, const fs::path&) { pairs(r); }},
      {"dropout", [](Recipe& r, const fs::path&) { r.model.family = "gpt2", r.model.dropout = 0.2; }},
      {"dropout of a translator", [](Recipe& r, const fs::path&) { pairs(r), r.model.dropout = 0.2; }},
      {"loss_norm micro", [](Recipe& r, const fs::path&) { r.train.loss_norm = LossNorm::kMicro; }},
      {"stream", [](Recipe& r, const fs::path&) { r.data.rows = RowKind::kStream, r.data.loss_after = ""; }},
  };
  return all;
}

Recipe recipe_of(const Case& one, int world, const fs::path& data) {
  Recipe recipe = small_recipe();
  recipe.train.steps = steps(), recipe.train.micro_batch = 2, recipe.train.accumulate = kPasses / world;
  recipe.train.lr = 3e-3, recipe.train.logging_steps = 1, recipe.train.loss_extract_interval = 5;
  recipe.train.eval_steps = 0, recipe.data.num_workers = 1;
  // AdamW divides a gradient by its own size: one that is all rounding, as that of the keys' bias, would
  // become a whole update.
  recipe.train.eps = 1e-5;
  one.change(recipe, data);
  return recipe;
}

fs::path run_of(const Case& one, const fs::path& folder) {
  std::string name = one.name;
  std::ranges::replace(name, ' ', '-');
  return folder / name;
}

void write_data(const fs::path& folder) {
  std::string text;
  for (int i = 0; i < 60; ++i)  // the answers of every other one are cut off
    text += fmt::format("{}{} = {}\n\n", i % 2 ? std::string(40, 'x') : "say ", i, i);
  write_file(folder / "half-masked", text);
}

struct Outcome {
  Lines lines;
  std::vector<double> losses;
  NamedTensors weights;
};

Outcome outcome_of(const RunFolder& run) {
  Outcome found;
  std::istringstream text(read_file(run.metrics()));
  for (std::string line; std::getline(text, line);) {
    auto json = nlohmann::json::parse(line);
    if (!json.contains("training/loss")) continue;
    found.losses.push_back(json["training/loss"]);
    found.lines.push_back(std::move(json));
  }
  for (const auto& [name, tensor] : load_checkpoint(run.checkpoints()).weights.tensors)
    found.weights.emplace_back(name, tensor.clone());
  return found;
}

class SameResult : public ::testing::TestWithParam<Split> {
 protected:
  /// Of one process that does all.
  static const Outcome& alone(const Case& one) {
    static const TempFolder folder;
    static std::map<std::string, Outcome> known;
    if (known.empty()) write_data(folder.path());
    if (!known.contains(one.name)) {
      const auto run = RunFolder::create(run_of(one, folder.path()), false);
      Trainer(recipe_of(one, 1, folder.path()), run).run();
      known[one.name] = outcome_of(run);
    }
    return known.at(one.name);
  }
};

TEST_P(SameResult, AsOfOneProcess) {
  const Split split = GetParam();
  if (in_child()) {
    const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
    Processes processes;
    for (const Case& one : cases()) {
      const auto path = run_of(one, folder);
      Trainer(recipe_of(one, split.world, folder),
              processes.main() ? RunFolder::create(path, false) : RunFolder(path), {.processes = &processes})
          .run();
    }
    return;
  }
  if (!split.always && !full()) GTEST_SKIP() << "TIGHTLOOP_EQUALITY=full runs it";
  const TempFolder folder;
  write_data(folder.path());
  expect_success(folder, split.world, {}, std::chrono::seconds(300));
  if (HasFailure()) return;
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.name);
    const Outcome &wanted = alone(one), got = outcome_of(RunFolder(run_of(one, folder.path())));
    EXPECT_TRUE(one.is_about(wanted.lines)) << wanted.lines.back();
    ASSERT_EQ(wanted.losses.size(), static_cast<size_t>(steps()));
    EXPECT_LT(wanted.losses.back(), wanted.losses.front()) << "it learns";
    ASSERT_EQ(got.losses.size(), wanted.losses.size());
    double losses = 0, weights = 0;
    for (size_t i = 0; i < wanted.losses.size(); ++i)
      losses = std::max(losses, std::abs(got.losses[i] / wanted.losses[i] - 1));
    EXPECT_LT(losses, one.losses);
    ASSERT_EQ(got.weights.size(), wanted.weights.size());
    std::string worst;
    for (size_t i = 0; i < wanted.weights.size(); ++i) {
      ASSERT_EQ(got.weights[i].first, wanted.weights[i].first);
      const double error = relative_error(got.weights[i].second, wanted.weights[i].second);
      if (error >= weights) weights = error, worst = wanted.weights[i].first;
    }
    EXPECT_LT(weights, one.weights) << worst;
    if (full())
      fmt::print("| {} | {} | {:.1e} | {:.1e} ({}) |\n", one.name, split.name(), losses, weights, worst);
  }
}

INSTANTIATE_TEST_SUITE_P(Splits, SameResult,
                         ::testing::Values(Split{2, false}, Split{4, true}, Split{8, true}),
                         [](const auto& split) { return "Of" + split.param.name(); });

}  // namespace
}  // namespace tightloop::testing
