#include "cli/recipe.h"

#include "core/error.h"
#include "core/files.h"
#include "tokenizer/unicode.h"
#include "train/saved_model.h"

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

Recipe read_recipe(const std::string& file, const Settings& settings) {
  const auto read_onto = [&](Recipe recipe) {
    Config config = recipe.bind();
    config.load(file);
    config.apply(settings);
    return recipe;
  };
  const Recipe alone = read_onto({});
  refuse_other_encodings(file, settings);
  if (alone.train.init_from.empty()) return alone;
  const SavedModel parent(alone.train.init_from);
  Recipe underneath;
  underneath.model = parent.recipe().model;
  underneath.tokenizer.path = parent.tokenizer_path().string();
  underneath.chat = parent.recipe().chat;
  return read_onto(std::move(underneath));
}

}  // namespace tightloop::cli
