// A run that goes on with another number of processes: no sample twice, none left out, the same course.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/hash.h"
#include "dist/several.h"
#include "ops/compare.h"
#include "train/run/checkpoint.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop::testing {
namespace {

using Samples = std::multiset<std::string>;

/// One stretch of a run: up to step `last`, in so many processes.
struct Stretch {
  int64_t world, last;
};
const std::vector<Stretch> kStretches{{2, 5}, {4, 9}, {1, 14}, {3, 20}};
constexpr int64_t kStepRows = 12, kSteps = 20;

/// What is in a micro-batch, row by row, whichever other rows are in it: ids without padding, and what is
/// learned of them.
void add_samples(const Staged& staged, bool pairs, Samples& samples) {
  const auto parts = staged.parts();
  const auto row_text = [](const at::Tensor& row, int64_t length) {
    return hex64(hash64(row.const_data_ptr(), static_cast<size_t>(length) * sizeof(int64_t)));
  };
  if (pairs) {
    const DevicePairs batch = device_pairs(parts);
    for (int64_t row = 0; row < batch.targets_BT.size(0); ++row) {
      const int64_t target = batch.targets_BT[row].ne(ops::kIgnoreIndex).sum().item<int64_t>();
      if (target == 0) continue;  // filled up
      samples.insert(row_text(batch.source_BS[row], batch.source_lengths_B[row].item<int64_t>()) + " " +
                     row_text(batch.targets_BT[row], target));
    }
    return;
  }
  const DeviceBatch batch = device_batch(parts);
  for (int64_t row = 0; row < batch.inputs_BT.size(0); ++row)
    samples.insert(row_text(batch.inputs_BT[row], batch.inputs_BT.size(1)) + " " +
                   row_text(batch.targets_BT[row], batch.targets_BT.size(1)));
}

// The real thing: processes that train, stop and are started again in another number.

Recipe elastic_recipe() {
  Recipe recipe = small_recipe();
  recipe.tasks.questions = 100;  // 2.4 passes; every stretch ends within one
  recipe.train.steps = kSteps, recipe.train.micro_batch = 2, recipe.train.logging_steps = 1;
  recipe.train.step_tokens = kStepRows * recipe.data.seq_len;
  recipe.train.lr = 3e-3, recipe.train.eval_steps = 0;
  return recipe;
}

/// A stretch in this process: trains, and writes down which samples it was given.
void train_stretch(const fs::path& folder, const std::string& name, int64_t last) {
  Recipe recipe = elastic_recipe();
  recipe.train.stop_at = last;
  Processes processes;
  const RunFolder run(folder / name);
  const auto steps = checkpoint_steps(run.checkpoints());
  const bool is_new = steps.empty();
  processes.barrier();  // nobody looks when the first makes the folder
  TrainerOptions how{.processes = &processes};
  if (!is_new) how.resume_from = load_checkpoint(run.checkpoints());
  Trainer trainer(recipe, is_new && processes.main() ? RunFolder::create(run.root(), false) : run, how);
  const int64_t first = is_new ? 0 : steps.back(), passes = trainer.recipe().train.accumulate;
  EXPECT_EQ(trainer.recipe().train.micro_batch * passes * processes.world(), kStepRows);
  ASSERT_EQ(trainer.run().step, last);
  Samples samples;
  for (int64_t i = first * passes; i < last * passes; ++i)
    add_samples(trainer.task().again(i), /*pairs=*/false, samples);
  std::string text;
  for (const auto& sample : samples) text += sample + "\n";
  write_file(folder / fmt::format("seen-{}-{}-{}", name, last, processes.rank()), text);
}

Samples seen(const TempFolder& folder, const std::string& name) {
  Samples samples;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    if (!entry.path().filename().string().starts_with("seen-" + name)) continue;
    std::istringstream text(read_file(entry.path()));
    for (std::string line; std::getline(text, line);) samples.insert(line);
  }
  return samples;
}

std::map<int64_t, double> losses_of(const RunFolder& run) {
  std::map<int64_t, double> losses;
  std::istringstream text(read_file(run.metrics()));
  for (std::string line; std::getline(text, line);)
    if (const auto json = nlohmann::json::parse(line); json.contains("training/loss"))
      losses[json["global_step"]] = json["training/loss"];
  return losses;
}

TEST(Elastic, TwoFourOneAndThreeProcessesTrainAsOneUndisturbedRun) {
  if (in_child())
    return train_stretch(std::getenv("TIGHTLOOP_TEST_FOLDER"), std::getenv("TIGHTLOOP_TEST_RUN"),
                         std::stoll(std::getenv("TIGHTLOOP_TEST_LAST")));
  const TempFolder folder;
  const auto train = [&](const std::string& run, const Stretch& stretch) {
    expect_success(folder, static_cast<int>(stretch.world),
                   {{"TIGHTLOOP_TEST_RUN", run}, {"TIGHTLOOP_TEST_LAST", std::to_string(stretch.last)}});
  };
  train("whole", {1, kSteps});
  for (const Stretch& stretch : kStretches) train("parts", stretch);
  if (HasFailure()) return;
  const Samples wanted = seen(folder, "whole");
  EXPECT_EQ(wanted.size(), static_cast<size_t>(kSteps * kStepRows));
  EXPECT_EQ(std::set(wanted.begin(), wanted.end()).size(), 100u) << "each question, two times or three";
  EXPECT_EQ(seen(folder, "parts"), wanted);
  const RunFolder whole(folder / "whole"), parts(folder / "parts");
  EXPECT_EQ(load_checkpoint(parts.checkpoints()).metadata.at("consumed"), kSteps * kStepRows);
  const auto losses = losses_of(whole), got = losses_of(parts);
  ASSERT_EQ(losses.size(), static_cast<size_t>(kSteps));
  ASSERT_EQ(got.size(), losses.size());
  double worst_loss = 0, worst_weight = 0;
  for (const auto& [step, loss] : losses)
    worst_loss = std::max(worst_loss, std::abs(got.at(step) / loss - 1));
  EXPECT_LT(worst_loss, 1e-6);
  const auto weights = load_checkpoint(parts.checkpoints()).weights;
  for (const auto& [name, tensor] : load_checkpoint(whole.checkpoints()).weights.tensors)
    worst_weight = std::max(worst_weight, relative_error(weights.tensors.at(name), tensor));
  EXPECT_LT(worst_weight, 1e-4);
  RecordProperty("worst_loss", fmt::format("{:.1e}", worst_loss));
  RecordProperty("worst_weight", fmt::format("{:.1e}", worst_weight));
}

// Every way to make rows: what each process of each stretch is given, step by step, by a task that each opens
// as it would. Processes are taken one after the other here: a task knows of the others by number alone.

struct Data {
  const char* name;
  std::function<void(Recipe&, const fs::path& folder)> change;
};

void texts(Recipe& recipe, const fs::path& folder) {
  recipe.data.source = DataSource::kJsonl, recipe.data.train = {(folder / "a.jsonl").string()};
  recipe.data.loss_after = "", recipe.data.seq_len = 64;
}

const Data kData[] = {
    {"pad", [](Recipe&, const fs::path&) {}},
    {"stream", [](Recipe& r, const fs::path& f) { texts(r, f), r.data.rows = RowKind::kStream; }},
    {"pack", [](Recipe& r, const fs::path& f) { texts(r, f), r.data.rows = RowKind::kPack; }},
    {"fit_crop", [](Recipe& r, const fs::path& f) { texts(r, f), r.data.rows = RowKind::kFitCrop; }},
    {"fit_pad", [](Recipe& r, const fs::path& f) { texts(r, f), r.data.rows = RowKind::kFitPad; }},
    {"live", [](Recipe& r, const fs::path& f) { texts(r, f), r.data.tokenize = TokenizeWhen::kLive; }},
    {"live_pack",
     [](Recipe& r, const fs::path& f) {
       texts(r, f), r.data.tokenize = TokenizeWhen::kLive, r.data.rows = RowKind::kPack;
     }},
    {"mixture_in_nanochats_order",
     [](Recipe& r, const fs::path& f) {
       texts(r, f);
       r.data.train.clear(), r.data.rows = RowKind::kFitPad, r.data.order = DocumentOrder::kNanochat;
       r.data.mixture = {"name=a source=jsonl train=" + (f / "a.jsonl").string(),
                         "name=b source=jsonl train=" + (f / "b.jsonl").string() + " epochs=2"};
     }},
    {"weighted_mixture",
     [](Recipe& r, const fs::path& f) {
       texts(r, f);
       r.data.train.clear();
       r.data.mixture = {"name=a source=jsonl weight=2 train=" + (f / "a.jsonl").string(),
                         "name=b source=jsonl weight=1 train=" + (f / "b.jsonl").string()};
     }},
    {"pairs",
     [](Recipe& r, const fs::path&) {
       r.data = {};
       r.data.source = DataSource::kToyPairs, r.data.seq_len = 32, r.data.batch_tokens = 96;
       r.tokenizer.type = TokenizerType::kUnigram, r.tokenizer.vocab_size = 120, r.model.family = "seq2seq";
     }},
};

class ElasticData : public ::testing::TestWithParam<Data> {};

TEST_P(ElasticData, EveryStepHasItsOwnSamplesWhateverTheProcesses) {
  const TempFolder folder;
  for (const char* file : {"a.jsonl", "b.jsonl"}) {
    std::string text;
    for (int i = 0; i < 60; ++i)
      text += fmt::format(R"({{"text":"{}: document {} of {} cats{}"}})", file, i, i * 7919 % 100,
                          std::string(static_cast<size_t>(i % 5) * 9, 'y')) +
              "\n";
    write_file(folder / file, text);
  }
  Recipe recipe = small_recipe();
  recipe.tasks.questions = 100, recipe.data.num_workers = 1;
  GetParam().change(recipe, folder.path());
  nlohmann::json metadata = nlohmann::json::object();
  const bool pairs = recipe.model.translates();
  const auto run = RunFolder::create(folder / "run", false);
  const auto steps_of = [&](const std::vector<Stretch>& stretches, int64_t micro_batch) {
    recipe.train.micro_batch = micro_batch;
    const auto task = make_task(recipe, run, metadata);
    EXPECT_LT(task->epoch_samples(), static_cast<uint64_t>(kSteps * kStepRows))
        << "the end of a pass is seen";
    std::vector<Samples> steps(kSteps);
    int64_t done = 0;
    for (const auto& [world, last] : stretches) {
      const int64_t passes = kStepRows / (world * task->samples());
      for (int rank = 0; rank < world; ++rank) {
        task->open(done * passes, done * kStepRows, rank, static_cast<int>(world));
        for (int64_t step = done; step < last; ++step)
          for (int64_t i = 0; i < passes; ++i)
            add_samples(task->next(/*pin=*/false), pairs, steps[static_cast<size_t>(step)]);
      }
      done = last;
    }
    return steps;
  };
  const auto whole = steps_of({{1, kSteps}}, 4), parts = steps_of(kStretches, 1);
  for (int64_t step = 0; step < kSteps; ++step) {
    EXPECT_GE(whole[static_cast<size_t>(step)].size(), static_cast<size_t>(kStepRows));
    EXPECT_EQ(parts[static_cast<size_t>(step)], whole[static_cast<size_t>(step)]) << "step " << step + 1;
  }
  EXPECT_NE(whole[0], whole[1]);
}

INSTANTIATE_TEST_SUITE_P(Rows, ElasticData, ::testing::ValuesIn(kData),
                         [](const auto& data) { return std::string(data.param.name); });

}  // namespace
}  // namespace tightloop::testing
