#include "train/run_tokenizer.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/terminal.h"
#include "data/training_text.h"

namespace tightloop {

std::unique_ptr<Tokenizer> train_tokenizer(BpeTrainOptions options, const DataConfig& data,
                                           const TasksConfig& tasks) {
  options.progress = [](std::string_view phase, size_t done, size_t total) {
    terminal::set_live(fmt::format("Training the tokenizer: {} {}{}", phase,
                                   human_count(static_cast<double>(done)),
                                   total ? "/" + human_count(static_cast<double>(total)) : ""));
  };
  TrainingText texts(data, tasks);
  size_t bytes = 0;
  auto tokenizer = train_bpe(options, [&](std::string& text) {
    const bool more = texts.next(text);
    bytes += more ? text.size() : 0;
    return more;
  });
  terminal::clear_live();
  if (bytes == 0) {
    throw data_error(
        "there is no text to train a tokenizer on in '{}'. Name files with text in them, or a tokenizer with "
        "--tokenizer.path.",
        fmt::join(data.train, "', '"));
  }
  return tokenizer;
}

std::unique_ptr<Tokenizer> make_tokenizer(const Recipe& recipe) {
  if (!recipe.tokenizer.path.empty()) return load_tokenizer(recipe.tokenizer.path);
  BpeTrainOptions options;
  options.vocab_size = static_cast<int32_t>(recipe.tokenizer.vocab_size);
  options.pattern = recipe.tokenizer.pattern;
  options.special_tokens = recipe.tokenizer.special_tokens;
  options.threads = static_cast<int>(recipe.data.tokenizer_threads);
  // One token a byte has nothing to learn from the texts.
  if (options.vocab_size == 257) return train_bpe(options, [](std::string&) { return false; });
  return train_tokenizer(options, recipe.data, recipe.tasks);
}

std::unique_ptr<Tokenizer> prepare_tokenizer(const Recipe& recipe, const RunFolder& run) {
  if (!std::filesystem::is_empty(run.tokenizer())) return load_tokenizer(run.tokenizer());
  auto tokenizer = make_tokenizer(recipe);
  tokenizer->save(run.tokenizer());
  return tokenizer;
}

}  // namespace tightloop
