#include "cli/recipe.h"

#include "train/saved_model.h"

namespace tightloop::cli {

Recipe read_recipe(const std::string& file, const Settings& settings) {
  const auto read_onto = [&](Recipe recipe) {
    Config config = recipe.bind();
    config.load(file);
    config.apply(settings);
    return recipe;
  };
  const Recipe alone = read_onto({});
  if (alone.train.init_from.empty()) return alone;
  const SavedModel parent(alone.train.init_from);
  Recipe underneath;
  underneath.model = parent.recipe().model;
  underneath.tokenizer.path = parent.tokenizer_path().string();
  underneath.chat = parent.recipe().chat;
  return read_onto(std::move(underneath));
}

}  // namespace tightloop::cli
