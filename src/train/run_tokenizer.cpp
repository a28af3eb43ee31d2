#include "train/run_tokenizer.h"

#include <fmt/core.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "core/terminal.h"
#include "data/training_text.h"
#include "tokenizer/bpe_train.h"

namespace tightloop {

namespace {

std::unique_ptr<Tokenizer> train_on_own_data(const Recipe& recipe) {
  BpeTrainOptions options;
  options.vocab_size = static_cast<int32_t>(recipe.tokenizer.vocab_size);
  options.pattern = recipe.tokenizer.pattern;
  options.threads = static_cast<int>(recipe.data.tokenizer_threads);
  options.progress = [](std::string_view phase, size_t done, size_t total) {
    terminal::set_live(fmt::format("Training the tokenizer: {} {}{}", phase,
                                   human_count(static_cast<double>(done)),
                                   total ? "/" + human_count(static_cast<double>(total)) : ""));
  };
  // One token a byte has nothing to learn from the texts.
  if (options.vocab_size == 257) return train_bpe(options, [](std::string&) { return false; });
  TrainingText texts(recipe.data, recipe.tasks);
  auto tokenizer = train_bpe(options, [&](std::string& text) { return texts.next(text); });
  terminal::clear_live();
  return tokenizer;
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const Recipe& recipe) {
  return recipe.tokenizer.path.empty() ? train_on_own_data(recipe) : load_tokenizer(recipe.tokenizer.path);
}

std::unique_ptr<Tokenizer> prepare_tokenizer(const Recipe& recipe, const RunFolder& run) {
  if (!std::filesystem::is_empty(run.tokenizer())) return load_tokenizer(run.tokenizer());
  auto tokenizer =
      recipe.tokenizer.path.empty() ? train_on_own_data(recipe) : load_tokenizer(recipe.tokenizer.path);
  tokenizer->save(run.tokenizer());
  return tokenizer;
}

}  // namespace tightloop
