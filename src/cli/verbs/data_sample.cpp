#include <fmt/format.h>

#include <CLI/App.hpp>
#include <memory>

#include "cli/main_settings.h"
#include "cli/output.h"
#include "cli/recipe.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/files.h"
#include "core/terminal/terminal.h"
#include "data/generate/sample_files.h"
#include "data/generate/sample_records.h"
#include "tokenizer/bpe_train.h"
#include "train/settings/recipe.h"

namespace tightloop::cli {

namespace {

struct DataSampleArguments {
  std::string file, to;
};

/// A small tokenizer in place of one that the recipe names, trained on the sample.
void write_tokenizer(const Recipe& recipe, const std::vector<SampleFile>& files, const fs::path& path,
                     std::vector<SampleFile>& made) {
  constexpr int32_t kVocabulary = 600;
  if (path_exists(path)) return made.push_back({path, false});
  std::vector<std::string> texts;
  for (const SampleFile& file : files)
    if (file.path.extension() != ".parquet" && file.path.extension() != ".gz")
      texts.push_back(read_file(file.path));
  if (texts.empty()) {  // what is in a Parquet file is no text; its words are those of this one
    Random random(1);
    for (int i = 0; i < 200; ++i) texts.push_back(SampleRecords::paragraph(random));
  }
  BpeTrainOptions options;
  options.vocab_size = kVocabulary, options.pattern = recipe.tokenizer.pattern;
  options.special_tokens = recipe.tokenizer.special_tokens;
  size_t next = 0;
  const auto tokenizer = train_bpe(options, [&](std::string& text) {
    if (next == texts.size()) return false;
    text = texts[next++];
    return true;
  });
  make_folder(path.parent_path());
  tokenizer->save(path.parent_path());
  made.push_back({path, true});
}

void write_samples(const DataSampleArguments& options, const Settings& settings) {
  Recipe recipe;
  Config config = recipe.bind();
  config.load(recipe_file(options.file));
  config.apply(settings);
  const fs::path folder = options.to;
  const SampleStyle style{.conversations = recipe.train.stage == "sft",
                          .minimind = recipe.chat.form == ChatForm::kMinimind,
                          .pairs = recipe.model.translates()};
  std::vector<SampleFile> files = write_sample_files(recipe.data, style, folder);
  const fs::path tokenizer = recipe.tokenizer.path;
  if (!tokenizer.empty() && tokenizer.is_relative() && tokenizer.filename() == "tokenizer.json")
    write_tokenizer(recipe, std::vector(files), folder / tokenizer, files);
  if (files.empty()) return put("This recipe reads no files: it runs as it is.\n");
  std::string text;
  for (const SampleFile& file : files)
    text += fmt::format("{} {}\n", file.written ? "wrote" : "is there already:", file.path.string());
  put(shown(
      text +
      fmt::format("Made up, in the format of what the recipe reads. To train on it: cd {} and run the recipe "
                  "there.\n",
                  shell_word(folder.string()))));
}

}  // namespace

void add_data_sample(CLI::App& data, const Settings& settings) {
  auto options = std::make_shared<DataSampleArguments>();
  auto* verb = data.add_subcommand(
      "sample", "Write small made-up files in the places and formats of those that a recipe reads");
  verb->add_option("RECIPE", options->file, "A YAML file of settings")->required();
  verb->add_option("--to", options->to,
                   "The folder that the recipe is to be run in; files there stay as they are")
      ->required();
  verb->footer(std::string(kTakesSettings) +
               "Example: tightloop data sample configs/nanochat-base.yaml --to try");
  verb->callback([=] { write_samples(*options, settings); });
}

}  // namespace tightloop::cli
