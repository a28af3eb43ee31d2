#include <ATen/ops/equal.h>

#include "core/files.h"
#include "infer/export.h"
#include "infer/loaded_run.h"
#include "model/files/huggingface.h"
#include "support.h"
#include "train/run/checkpoint.h"
#include "train/run/saved_model.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;

Recipe stage_recipe() {
  Recipe recipe = testing::small_recipe();
  recipe.tasks.questions = 200, recipe.tasks.held_out = 10;
  recipe.train.stage = "base", recipe.train.steps = 6, recipe.train.logging_steps = 2;
  return recipe;
}

Recipe next_stage(const Recipe& before, const fs::path& parent) {
  Recipe recipe = before;
  recipe.train.init_from = parent.string(), recipe.train.stage = "sft";
  recipe.model = SavedModel(parent).recipe().model;
  recipe.tokenizer.path = SavedModel(parent).tokenizer_path().string();
  return recipe;
}

RunFolder train(const Recipe& recipe, const fs::path& root) {
  const auto run = RunFolder::create(root, false);
  Trainer(recipe, run).run();
  return run;
}

TEST(Stages, AStageStartsFromItsParentAndSaysSo) {
  const TempFolder folder;
  const auto base = train(stage_recipe(), folder / "base");
  EXPECT_EQ(SavedModel(base.root()).metadata().at("stage"), "base");
  const auto recipe = next_stage(stage_recipe(), base.root());
  const auto run = RunFolder::create(folder / "sft", false);
  Trainer trainer(recipe, run);
  for (const auto& [name, tensor] : load_checkpoint(base.checkpoints()).weights.tensors)
    EXPECT_TRUE(at::equal(tensor, trainer.model().parameters().find(name)->value)) << name;
  trainer.run();
  const auto metadata = load_checkpoint(run.checkpoints()).metadata;
  EXPECT_EQ(metadata.at("stage"), "sft");
  EXPECT_EQ(metadata.at("parent").at("path"), base.root().string());
  EXPECT_EQ(metadata.at("parent").at("step"), 6);
  EXPECT_EQ(metadata.at("parent").at("stage"), "base");

  // The run goes on without its parent, and still knows of it.
  fs::remove_all(base.root());
  auto longer = recipe;
  longer.train.steps = 8;
  Trainer resumed(longer, run, {.resume_from = load_checkpoint(run.checkpoints())});
  EXPECT_EQ(resumed.run().step, 8);
  auto later = load_checkpoint(run.checkpoints()).metadata;
  // Of the evaluations, the place in the data and the steps: those are others now.
  for (const char* key : {"best", "worse", "evaluated", "consumed", "settings", "totals"})
    later[key] = metadata.at(key);
  EXPECT_EQ(later, metadata);
}

TEST(Stages, MetadataIsAnOpenSet) {
  const TempFolder folder;
  const NamedTensors none;
  save_checkpoint(folder.path(), 3, none, none, {{"stage", "x"}, {"later", {{"idea", true}}}});
  EXPECT_EQ(load_checkpoint(folder.path()).metadata.at("later").at("idea"), true);
}

TEST(Stages, SizesMustAgree) {
  const TempFolder folder;
  const auto base = train(stage_recipe(), folder / "base");
  auto recipe = next_stage(stage_recipe(), base.root());
  recipe.model.width = 64, recipe.model.head_size = 0, recipe.model.ffn = 0;
  const auto message = error_of(ExitCode::kCheckpoint, [&] { train(recipe, folder / "wide"); });
  EXPECT_NE(message.find("32"), std::string::npos) << message;
  EXPECT_NE(message.find("64"), std::string::npos) << message;
}

TEST(Stages, ACheckpointsFolderIsAParentToo) {
  const TempFolder folder;
  auto recipe = stage_recipe();
  recipe.train.save_steps = 2;
  const auto base = train(recipe, folder / "base");
  const auto second = base.checkpoints() / "step-00000002";
  EXPECT_EQ(SavedModel(second).step(), 2);
  EXPECT_EQ(SavedModel(second / "").step(), 2);
  EXPECT_EQ(SavedModel(base.root(), 4).step(), 4);
  EXPECT_EQ(SavedModel(base.root()).step(), 6);
  const auto loaded = load_model(second, "cpu");
  EXPECT_TRUE(at::equal(loaded.model->parameters().find("embedding")->value,
                        load_checkpoint(base.checkpoints(), 2).weights.tensors.at("embedding")));
  error_of(ExitCode::kUsage, [&] { SavedModel(folder / "nothing"); });
}

TEST(Stages, ExportImportAndTrainOn) {
  const TempFolder folder;
  const auto base = train(stage_recipe(), folder / "base");
  EXPECT_EQ(export_model(base.root(), folder / "hf", {}), "bf16");
  error_of(ExitCode::kUsage, [&] { export_model(base.root(), folder / "hf", {}); });
  EXPECT_EQ(folder_entries(folder.path()).size(), 2u) << "nothing but the run and its export";
  EXPECT_EQ(export_model(folder / "hf", folder / "again", {}), "bf16");
  for (const char* file : {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"})
    EXPECT_EQ(read_file(folder / "hf" / file), read_file(folder / "again" / file)) << file;

  const auto run = train(next_stage(stage_recipe(), folder / "hf"), folder / "tuned");
  const auto metadata = SavedModel(run.root()).metadata();
  EXPECT_EQ(metadata.at("dtype"), "bf16");
  EXPECT_EQ(metadata.at("parent").at("path"), (folder / "hf").string());
  EXPECT_EQ(load_tokenizer(run.tokenizer())->fingerprint(), load_tokenizer(base.tokenizer())->fingerprint());
}

TEST(Stages, AdaptersAreSavedResumedAndMerged) {
  const TempFolder folder;
  const auto base = train(stage_recipe(), folder / "base");
  const auto start = load_checkpoint(base.checkpoints());
  auto recipe = next_stage(stage_recipe(), base.root());
  recipe.lora.rank = 4, recipe.train.steps = 8;
  const auto whole = train(recipe, folder / "whole");
  recipe.train.stop_at = 5;
  const auto parts = train(recipe, folder / "parts");
  recipe.train.stop_at = 0;
  fs::rename(base.root(), folder / "gone");
  Trainer resumed(recipe, parts, {.resume_from = load_checkpoint(parts.checkpoints())});
  resumed.run();

  const auto saved = load_checkpoint(whole.checkpoints()), again = load_checkpoint(parts.checkpoints());
  for (const auto& [name, tensor] : saved.weights.tensors)
    EXPECT_TRUE(at::equal(tensor, again.weights.tensors.at(name))) << name;
  for (const auto& [name, tensor] : start.weights.tensors)
    EXPECT_TRUE(at::equal(tensor, saved.weights.tensors.at(name))) << name << " is frozen";
  EXPECT_GT(saved.weights.tensors.at("blocks.0.qkv.lora_b").abs().max().item<double>(), 0);
  for (const auto& [name, tensor] : saved.optimizer.tensors)
    EXPECT_TRUE(name == "count" || name == "spikes" || name.find("lora_") != std::string::npos) << name;

  const auto loaded = load_model(whole.root(), "cpu");
  for (const auto& parameter : loaded.model->parameters().all())
    EXPECT_EQ(at::equal(parameter.value, start.weights.tensors.at(parameter.name)),
              parameter.name != "blocks.0.qkv" && parameter.name != "blocks.0.out")
        << parameter.name;
}

}  // namespace
}  // namespace tightloop
