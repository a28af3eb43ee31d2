#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/store/documents.h"
#include "infer/beam.h"
#include "model/families/seq2seq/seq2seq.h"
#include "score/bleu.h"
#include "score/chrf.h"
#include "train/run/run_tokenizer.h"
#include "train/run/saved_model.h"
#include "train/settings/recipe.h"

namespace tightloop {

/// A trained translator, ready to be asked.
struct LoadedTranslator {
  Recipe recipe;
  PairTokenizers tokenizers;
  std::unique_ptr<Seq2Seq> model;
  int64_t step = 0;
  nlohmann::json metadata{};  // as the checkpoint has it
};

/// Loads a run that translates (its newest checkpoint, or that of `step`), or one of its checkpoints, onto a
/// device: auto, cpu, cuda:N. It computes in `precision` (none: as it was trained). A
/// usage error where the run does something else.
LoadedTranslator load_translator(const std::filesystem::path& path, const std::string& device_name,
                                 std::optional<int64_t> step = {}, std::optional<Precision> precision = {});
/// The same of what is open: see load_model().
LoadedTranslator load_translator(const SavedModel& saved, const std::string& device_name,
                                 std::optional<Precision> precision = {});

/// What decoding must know of a tokenizer: its marks, and that padding and unknown words are never made.
TargetTokens target_tokens(const Tokenizer& target);

struct TextTranslation {
  std::string text;
  double score = 0;
  size_t tokens = 0;
};

struct TranslateOptions {
  DecodeConfig decode;
  int64_t batch_tokens = 0;  // see decode_all()
  uint64_t first_line = 0;   // which line of a longer text the first is, for random draws
  int64_t longest = 0;       // sources are cut to so many tokens; 0: the model's context
  std::function<void(size_t done)> progress{};
  /// Told about lines that were cut: (line, its tokens).
  std::function<void(size_t, size_t)> on_cut{};
};

/// Translations of every line, the best first. A line without words has one, the empty one; line ends in
/// translations become spaces, so that a line stays a line.
std::vector<std::vector<TextTranslation>> translate(Seq2Seq& model, const PairTokenizers& tokenizers,
                                                    std::span<const std::string> lines,
                                                    const TranslateOptions& options);

/// What BLEU and chrF are made of. Those of processes that share sentences add up to those of all: as plain
/// numbers they are what SplitMeasure wants.
struct TranslationCounts {
  BleuCounts words{};
  ChrfCounts characters{};

  std::vector<int64_t> numbers() const;
  static TranslationCounts of(const std::vector<int64_t>& numbers);
};

/// BLEU and chrF of held-out pairs (documents 2i and 2i + 1), decoded as `options` say, the first `limit` of
/// them (0: all); of those, every `world`-th from `rank` on. References are what the tokenizer makes of the
/// tokens.
struct HeldOutScores {
  double bleu = 0, chrf = 0;
  int64_t pairs = 0;
  std::vector<std::string> translations{}, references{};
  TranslationCounts counts{};
};
HeldOutScores held_out_scores(Seq2Seq& model, const Documents& pairs, const Tokenizer& target,
                              const TranslateOptions& options, const BleuOptions& bleu, int64_t limit,
                              int rank = 0, int world = 1);

}  // namespace tightloop
