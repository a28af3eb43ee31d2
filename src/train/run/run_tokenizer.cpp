#include "train/run/run_tokenizer.h"

#include <fmt/ranges.h>

#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "core/terminal/progress_line.h"
#include "core/terminal/terminal.h"
#include "data/training_text.h"
#include "tokenizer/jinja/template_files.h"
#include "train/settings/loading.h"

namespace tightloop {

namespace {

/// Texts one after the other, for a trainer; a data error at the end when there was nothing in them, or too
/// much that cannot be used.
class CountedText {
 public:
  CountedText(const DataConfig& data, const TasksConfig& tasks, PairSide side, const TextLimits& limits)
      : data_(data), texts_(data, tasks, side), limits_(limits) {}
  bool next(std::string& text) {
    if (limits_.total > 0 && bytes_ >= static_cast<size_t>(limits_.total)) return false;
    const bool more = texts_.next(text);
    if (const auto most = static_cast<size_t>(limits_.document); more && most > 0 && text.size() > most)
      text.resize(whole_characters_of(text, most).size());
    bytes_ += more ? text.size() : 0;
    if (more) return true;
    refuse_too_many_bad(data_, texts_.bad(), texts_.good());
    if (bytes_ > 0) return false;
    const BadRecords& bad = texts_.bad();
    throw data_error(
        "there is no text to train a tokenizer on in '{}'{} Name files with text in them, or in a recipe a "
        "tokenizer that is there already (tokenizer.path).{}",
        fmt::join(data_.train, "', '"), bad.total() > 0 ? fmt::format(": {}\n", bad.report()) : ".",
        bad.total() > 0 ? advice_about_files(data_) : "");
  }
  const BadRecords& bad() const { return texts_.bad(); }
  void warn_unless(int32_t wanted, const Tokenizer& tokenizer, bool chosen) const {
    if (tokenizer.vocab_size() >= wanted) return;
    if (chosen) return log::info("The text gives a vocabulary of {} tokens.", tokenizer.vocab_size());
    log::warn(
        "The vocabulary has {} tokens, not the {} that were asked for: {} bytes of text give no more. A "
        "smaller "
        "tokenizer.vocab_size (--vocab-size) or more text makes the two agree.",
        tokenizer.vocab_size(), wanted, human_count(static_cast<double>(bytes_)));
  }
  /// A line of how much of the files has been read.
  void show_reading(std::optional<ProgressLine>& progress) const {
    progress.emplace("Training the tokenizer, reading", texts_.reader().total_bytes());
    progress->count_from([this] { return texts_.reader().bytes_read(); });
  }

 private:
  const DataConfig& data_;
  TrainingText texts_;
  TextLimits limits_;
  size_t bytes_ = 0;
};

std::unique_ptr<Tokenizer> train_of(const Recipe& recipe, PairSide side) {
  const TokenizerConfig& config = recipe.tokenizer;
  const auto threads = static_cast<int>(recipe.data.tokenizer_threads);
  const auto size = static_cast<int32_t>(config.vocab_size);
  if (config.type != TokenizerType::kByteBpe) {
    SentencePieceTrainOptions options;
    options.vocab_size = size, options.model_type = config.type, options.threads = threads;
    options.character_coverage = config.character_coverage, options.exact = false;
    if (!loads_pairs(recipe)) options.control_symbols = config.chat_tokens();
    return train_tokenizer(options, recipe.data, recipe.tasks, side, nullptr, config.size_is_chosen,
                           {config.train_bytes, config.document_bytes});
  }
  constexpr int32_t kBytes = 257;  // and the end of text
  if (size < kBytes)
    throw usage_error("tokenizer.vocab_size is {}; a byte-level BPE has at least {} tokens.", size, kBytes);
  BpeTrainOptions options;
  options.vocab_size = size, options.pattern = config.pattern, options.threads = threads;
  options.special_tokens = config.special_tokens_for(size);
  // One token a byte has nothing to learn from the texts.
  if (size == kBytes) return train_bpe(options, [](std::string&) { return false; });
  return train_tokenizer(options, recipe.data, recipe.tasks, side, nullptr, config.size_is_chosen,
                         {config.train_bytes, config.document_bytes});
}

}  // namespace

std::unique_ptr<Tokenizer> train_tokenizer(BpeTrainOptions options, const DataConfig& data,
                                           const TasksConfig& tasks, PairSide side, BadRecords* bad,
                                           bool size_is_chosen, const TextLimits& limits) {
  CountedText texts(data, tasks, side, limits);
  std::optional<ProgressLine> progress;
  texts.show_reading(progress);
  bool merging = false;
  options.progress = [&](std::string_view phase, size_t done, size_t total) {
    if (phase != "merging") return;
    if (!std::exchange(merging, true))
      progress.emplace("Training the tokenizer, merges", total, ProgressLine::Unit::kCount);
    progress->set(done);
  };
  auto tokenizer = train_bpe(options, [&](std::string& text) { return texts.next(text); });
  progress.reset();
  texts.warn_unless(options.vocab_size, *tokenizer, size_is_chosen);
  if (bad) *bad = texts.bad();
  return tokenizer;
}

std::unique_ptr<Tokenizer> train_tokenizer(const SentencePieceTrainOptions& options, const DataConfig& data,
                                           const TasksConfig& tasks, PairSide side, BadRecords* bad,
                                           bool size_is_chosen, const TextLimits& limits) {
  CountedText texts(data, tasks, side, limits);
  std::optional<ProgressLine> progress;
  texts.show_reading(progress);
  auto tokenizer = train_sentencepiece(options, [&](std::string& text) {
    const bool more = texts.next(text);
    if (!more) progress.emplace(fmt::format("Training the tokenizer, {} pieces", options.vocab_size));
    return more;
  });
  progress.reset();
  texts.warn_unless(options.vocab_size, *tokenizer, size_is_chosen);
  if (bad) *bad = texts.bad();
  return tokenizer;
}

std::unique_ptr<Tokenizer> make_tokenizer(const Recipe& recipe) {
  auto tokenizer = recipe.tokenizer.path.empty() ? train_of(recipe, PairSide::kBoth)
                                                 : load_tokenizer(recipe.tokenizer.path);
  give_chat_template(recipe.chat, *tokenizer);
  return tokenizer;
}

void give_chat_template(const ChatConfig& config, Tokenizer& tokenizer) {
  const std::string& path = config.template_path;
  if (path.empty()) return;
  if (!path_exists(path)) throw usage_error("chat.template: there is no '{}'.", path);
  ChatTemplateFiles chat = read_chat_template(path);
  if (chat.tokens.empty()) chat.tokens = tokenizer.chat().tokens;
  tokenizer.set_chat(std::move(chat));
}

std::unique_ptr<Tokenizer> prepare_tokenizer(const Recipe& recipe, const RunFolder& run) {
  if (!folder_entries(run.tokenizer()).empty()) return load_tokenizer(run.tokenizer());
  auto tokenizer = make_tokenizer(recipe);
  tokenizer->set_chat(tokenizer->chat().on_day_of(std::time(nullptr)));
  tokenizer->save(run.tokenizer());
  return tokenizer;
}

PairTokenizers load_pair_tokenizers(const RunFolder& run) {
  PairTokenizers pair{load_tokenizer(run.tokenizer()), nullptr};
  if (path_exists(run.target_tokenizer())) pair.own_target = load_tokenizer(run.target_tokenizer());
  return pair;
}

PairTokenizers make_tokenizers(const Recipe& recipe) {
  const TokenizerConfig& config = recipe.tokenizer;
  if (!loads_pairs(recipe)) return {make_tokenizer(recipe), nullptr};
  if (config.path.empty() && !config.target_path.empty())
    throw usage_error("tokenizer.target_path is given without tokenizer.path; give both or none.");
  if (!config.path.empty())
    return {load_tokenizer(config.path),
            config.target_path.empty() ? nullptr : load_tokenizer(config.target_path)};
  if (config.joint) return {train_of(recipe, PairSide::kBoth), nullptr};
  return {train_of(recipe, PairSide::kSource), train_of(recipe, PairSide::kTarget)};
}

PairTokenizers prepare_pair_tokenizers(const Recipe& recipe, const RunFolder& run) {
  PairTokenizers pair;
  if (!folder_entries(run.tokenizer()).empty()) {
    pair = load_pair_tokenizers(run);
  } else {
    pair = make_tokenizers(recipe);
    if (pair.own_target) {
      make_folder(run.target_tokenizer());
      pair.own_target->save(run.target_tokenizer());
    }
    pair.source->save(run.tokenizer());
  }
  if (pair.own_target && recipe.model.share_embeddings)
    throw usage_error(
        "model.share_embeddings needs one tokenizer for both sides. Set it to false, or use a joint "
        "tokenizer (tokenizer.joint).");
  return pair;
}

}  // namespace tightloop
