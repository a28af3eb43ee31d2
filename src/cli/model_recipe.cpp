#include "cli/model_recipe.h"

#include "cli/model_choice.h"
#include "cli/recipe.h"
#include "core/files.h"
#include "core/io/gguf.h"
#include "train/run/checkpoint_name.h"
#include "train/run/saved_model.h"

namespace tightloop::cli {

bool names_model(const std::string& what) {
  if (is_gguf_name(what) && is_file(what)) return true;
  for (const fs::path& folder : {fs::path(what), fs::path("runs") / what})
    for (const char* file : {"config.yaml", "config.json", "state.json"})
      if (path_exists(folder / file)) return true;
  const auto checkpoint = split_checkpoint_name(what);
  return checkpoint && names_model(checkpoint->run.string());
}

Recipe recipe_or_model(const std::string& what, const Settings& settings) {
  if (!names_model(what)) {
    Recipe recipe = read_recipe(what, settings);
    resolve_model(recipe);
    return recipe;
  }
  Recipe recipe = SavedModel(existing_run(what)).recipe();
  recipe.bind().apply(settings);
  return recipe;
}

}  // namespace tightloop::cli
