#include "train/engine/task.h"

#include "core/error.h"
#include "train/engine/language_task.h"
#include "train/engine/translation_task.h"

namespace tightloop {

namespace {

[[noreturn]] void refuse_translator() {
  throw usage_error("this run trains a translator, not a language model: see model.family.");
}

}  // namespace

LanguageModel& Task::language_model() { refuse_translator(); }
const Tokenizer& Task::tokenizer() const { refuse_translator(); }

std::unique_ptr<Task> make_task(Recipe& recipe, const RunFolder& run, nlohmann::json& metadata,
                                const Checkpoint* from) {
  if (recipe.model.translates()) return std::make_unique<TranslationTask>(recipe, run, metadata, from);
  return std::make_unique<LanguageTask>(recipe, run, metadata, from);
}

}  // namespace tightloop
