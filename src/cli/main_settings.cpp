#include "cli/main_settings.h"

#include <fmt/format.h>

#include "train/settings/recipe.h"

namespace tightloop::cli {

std::string settings_help(std::span<const char* const> keys) {
  Recipe recipe;
  Config config = recipe.bind();
  std::string text;
  for (const char* key : keys) {
    const Field& field = *config.field(key);
    std::string value = field.default_text();
    if (value == "\"\"" || value == "[]") value.clear();
    std::erase(value, '"');
    text += fmt::format("  {:<32} {}\n", fmt::format("--{} {}", key, value),
                        field.help().substr(0, field.help().find(';')));
  }
  return text;
}

std::string main_settings() {
  static const char* const keys[] = {"data.train",
                                     "data.source",
                                     "data.val",
                                     "data.holdout",
                                     "data.seq_len",
                                     "tokenizer.path",
                                     "tokenizer.vocab_size",
                                     "model.preset",
                                     "model.layers",
                                     "model.width",
                                     "model.heads",
                                     "train.init_from",
                                     "lora.rank",
                                     "train.epochs",
                                     "train.steps",
                                     "train.micro_batch",
                                     "train.accumulate",
                                     "train.lr",
                                     "train.warmup_steps",
                                     "train.eval_steps",
                                     "train.save_steps",
                                     "train.precision",
                                     "train.device",
                                     "run.name"};
  return settings_help(keys);
}

}  // namespace tightloop::cli
