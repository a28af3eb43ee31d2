#include "infer/translate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <type_traits>

#include "core/device.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/terminal/progress_line.h"
#include "data/render/render.h"
#include "infer/prompts.h"
#include "score/bleu_words.h"
#include "score/chrf.h"
#include "train/engine/precision.h"
#include "train/run/saved_model.h"

namespace tightloop {

namespace {

constexpr size_t kManyBytes = 1 << 20;     // of a line: what is tokenized at the most, or all that can matter
constexpr int64_t kLongestUnknown = 1024;  // tokens of a source, where the model does not say

std::vector<int32_t> document(const Documents& documents, uint64_t number) {
  std::vector<int32_t> ids(documents.length(number));
  documents.read(documents.begin(number), ids.size(), ids.data());
  return ids;
}

// Whole characters of a line of which no more than so many bytes can matter.
std::string_view first_bytes(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (text[most] & 0xC0) == 0x80) --most;
  return text.substr(0, most);
}

std::string text_of(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::string text = tokenizer.decode(ids);
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  return text;
}

}  // namespace

LoadedTranslator load_translator(const std::filesystem::path& path, const std::string& device_name,
                                 std::optional<int64_t> step, std::optional<Precision> precision) {
  return load_translator(SavedModel(path, step), device_name, precision);
}

LoadedTranslator load_translator(const SavedModel& saved, const std::string& device_name,
                                 std::optional<Precision> precision) {
  if (!saved.recipe().model.translates())
    throw usage_error("'{}' holds a model of the family {}, which does not translate.", saved.path().string(),
                      saved.recipe().model.family);
  Device& target = device(device_name);
  LoadedTranslator loaded{saved.recipe(), saved.pair_tokenizers(), nullptr, saved.step(), saved.metadata()};
  Recipe& recipe = loaded.recipe;
  use_threads(recipe.train.threads);
  recipe.ops.apply();
  recipe.model.resolve_pair(loaded.tokenizers.source->vocab_size(), loaded.tokenizers.target().vocab_size(),
                            recipe.data.seq_len);
  loaded.model = std::make_unique<Seq2Seq>(recipe.model, recipe.train.seed);
  saved.load_weights(loaded.model->parameters());
  const auto dtype = inference_dtype(precision, recipe.train.precision, target);
  warn_of_slow_products(dtype, target);
  loaded.model->parameters().to(at::Device(target.name()), dtype);
  return loaded;
}

TargetTokens target_tokens(const Tokenizer& target) {
  const SentenceMarks marks(target);
  TargetTokens tokens{marks.begin, marks.end, target.vocab_size()};
  for (const char* name : {"<pad>", "<unk>"})
    if (const auto id = target.token_id(name)) tokens.never.push_back(*id);
  return tokens;
}

std::vector<std::vector<TextTranslation>> translate(Seq2Seq& model, const PairTokenizers& tokenizers,
                                                    std::span<const std::string> lines,
                                                    const TranslateOptions& options) {
  const int64_t context = model.config().context;
  const auto longest = static_cast<size_t>(options.longest > 0 ? options.longest
                                           : context > 2       ? context
                                                               : kLongestUnknown);
  const SentenceMarks marks(*tokenizers.source);
  std::vector<std::vector<int32_t>> sources;
  for (size_t line = 0; line < lines.size(); ++line) {
    auto& ids = sources.emplace_back();
    ids.push_back(marks.begin);
    throw_if_interrupted();
    const std::string_view text = first_bytes(lines[line], std::max(kManyBytes, longest * kMostTokenBytes));
    if (!split_words(text).empty()) tokenizers.source->encode(text, ids, SpecialText::kText);
    ids.push_back(marks.end);
    if (ids.size() <= longest) continue;
    if (options.on_cut) options.on_cut(line, ids.size() - 2);
    ids.resize(longest);
    ids.back() = marks.end;
  }
  const auto decoded = decode_all(model, sources, target_tokens(tokenizers.target()), options.decode,
                                  options.batch_tokens, options.first_line, options.progress);
  std::vector<std::vector<TextTranslation>> translated;
  for (const auto& found : decoded) {
    auto& texts = translated.emplace_back();
    for (const Translation& one : found)
      texts.push_back({text_of(tokenizers.target(), one.ids), one.score, one.ids.size()});
  }
  return translated;
}

static_assert(std::is_trivially_copyable_v<TranslationCounts> &&
              sizeof(TranslationCounts) % sizeof(int64_t) == 0);
using FlatCounts = std::array<int64_t, sizeof(TranslationCounts) / sizeof(int64_t)>;

std::vector<int64_t> TranslationCounts::numbers() const {
  const auto flat = std::bit_cast<FlatCounts>(*this);
  return {flat.begin(), flat.end()};
}

TranslationCounts TranslationCounts::of(const std::vector<int64_t>& numbers) {
  FlatCounts flat{};
  std::ranges::copy(numbers, flat.begin());
  return std::bit_cast<TranslationCounts>(flat);
}

HeldOutScores held_out_scores(Seq2Seq& model, const Documents& pairs, const Tokenizer& target,
                              const TranslateOptions& options, const BleuOptions& bleu, int64_t limit,
                              int rank, int world) {
  HeldOutScores scores;
  const auto all = static_cast<int64_t>(pairs.size() / 2), wanted = limit > 0 ? std::min(limit, all) : all;
  std::vector<std::vector<int32_t>> sources;
  for (int64_t pair = rank; pair < wanted; pair += world) {
    sources.push_back(document(pairs, 2 * static_cast<uint64_t>(pair)));
    const auto reference = document(pairs, 2 * static_cast<uint64_t>(pair) + 1);
    const std::span<const int32_t> words(reference.begin() + 1, reference.end() - 1);
    scores.references.push_back(text_of(target, words));
  }
  scores.pairs = static_cast<int64_t>(sources.size());
  DecodeConfig decode = options.decode;
  decode.nbest = 1;
  std::optional<ProgressLine> progress;  // of one process, for all
  if (rank == 0) progress.emplace("Held-out translations", sources.size(), ProgressLine::Unit::kCount);
  const auto decoded =
      decode_all(model, sources, target_tokens(target), decode, options.batch_tokens, 0, [&](size_t done) {
        if (progress) progress->set(done);
      });
  for (size_t i = 0; i < decoded.size(); ++i) {
    const std::string text = decoded[i].empty() ? "" : text_of(target, decoded[i].front().ids);
    scores.counts.words.add(bleu_counts(text, scores.references[i], bleu));
    scores.counts.characters.add(chrf_counts(text, scores.references[i], bleu.lowercase));
    scores.translations.push_back(text);
  }
  scores.bleu = corpus_bleu(scores.counts.words).score, scores.chrf = chrf(scores.counts.characters);
  return scores;
}

}  // namespace tightloop
