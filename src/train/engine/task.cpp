#include "train/engine/task.h"

#include "train/engine/language_task.h"
#include "train/engine/translation_task.h"

namespace tightloop {

std::unique_ptr<Task> make_task(Recipe& recipe, const RunFolder& run, nlohmann::json& metadata) {
  if (recipe.model.translates()) return std::make_unique<TranslationTask>(recipe, run, metadata);
  return std::make_unique<LanguageTask>(recipe, run, metadata);
}

}  // namespace tightloop
