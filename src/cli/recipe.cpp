#include "cli/recipe.h"

#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"
#include "train/auto_sizes.h"
#include "train/run_length.h"
#include "train/saved_model.h"
#include "train/settle_source.h"

namespace tightloop::cli {

namespace {

/// A run writes its settings down as UTF-8; what is not would come back as something else.
void refuse_other_encodings(const std::string& file, const Settings& settings) {
  for (const std::string& setting : settings)
    if (!is_utf8(setting))
      throw usage_error("'{}' is not UTF-8, so a run could not keep it as a setting. Rename the file.",
                        setting);
  if (!is_utf8(read_file(file))) throw usage_error("'{}' is not UTF-8.", file);
}

}  // namespace

Recipe read_recipe(const std::string& file, const Settings& settings, std::vector<std::string>* notes) {
  const auto read_onto = [&](Recipe recipe, bool whole) {
    Config config = recipe.bind();
    config.load(file);
    config.apply(settings);
    prefer_command_line(recipe.train, config);
    if (!whole) return recipe;
    // What the recipe says about its own files says nothing about a user's.
    if (config.commanded("data.train")) recipe.data.missing.clear();
    // The sizes of a model that is there already are its own.
    if (!recipe.train.init_from.empty() && recipe.model.preset == "auto") recipe.model.preset.clear();
    const std::vector<std::string> about_source = settle_source(recipe, config);
    for (const std::string& note : about_source)
      if (!notes) log::info("{}", note);
    const std::string sizes = has_auto_sizes(recipe) ? settle_sizes(recipe, config) : "";
    if (notes) {
      *notes = about_source;
      if (!sizes.empty()) notes->push_back(sizes);
    }
    if (recipe.data.seq_len < 2)
      throw usage_error("data.seq_len is {}; a row has at least 2 tokens.", recipe.data.seq_len);
    return recipe;
  };
  const Recipe alone = read_onto({}, /*whole=*/false);
  refuse_other_encodings(file, settings);
  if (alone.train.init_from.empty()) return read_onto({}, /*whole=*/true);
  const SavedModel parent(alone.train.init_from);
  Recipe underneath;
  underneath.model = parent.recipe().model;
  underneath.tokenizer.path = parent.tokenizer_path().string();
  underneath.chat = parent.recipe().chat;
  return read_onto(std::move(underneath), /*whole=*/true);
}

void require_files(const DataConfig& data) {
  if (data.missing.empty() || data.generated()) return;
  for (const auto* patterns : {&data.train, &data.train_target, &data.val, &data.val_target})
    for (const std::string& pattern : *patterns)
      if (!path_exists(pattern))
        throw data_error("'{}' is not there. {} Files of yours instead: --data.train FILE.", pattern,
                         data.missing);
}

void resolve_model(Recipe& recipe) {
  ModelConfig& model = recipe.model;
  const TokenizerConfig& tokenizer = recipe.tokenizer;
  const auto size = [&](const std::string& path) {
    return path.empty() ? tokenizer.vocab_size : load_tokenizer(path)->vocab_size();
  };
  if (model.translates()) {
    const bool known = model.vocab_size > 0 && (model.share_embeddings || model.source_vocab_size > 0);
    const int64_t source = known ? 0 : size(tokenizer.path),
                  target = known || tokenizer.target_path.empty() ? source : size(tokenizer.target_path);
    return model.resolve_pair(source, target, recipe.data.seq_len);
  }
  model.resolve(model.vocab_size > 0 ? 0 : size(tokenizer.path), recipe.data.seq_len);
}

}  // namespace tightloop::cli
