#include "train/settings/resolve_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "core/files.h"
#include "data/mixture.h"
#include "data/read/csv.h"
#include "data/store/infer_source.h"

namespace tightloop {

namespace {

constexpr int64_t kShortRow = 128, kSmallVocabulary = 1024;

std::string in_words(const InferredSource& found) {
  return fmt::format("{} holds {}: data.source {}{}", found.file.string(), found.holds, name_of(found.source),
                     found.format ? fmt::format(", format {}", name_of(*found.format)) : "");
}

/// A recipe that learns answers needs somebody who answers.
void demand_conversations(const Recipe& recipe, const InferredSource& found) {
  if ((recipe.data.format != RecordFormat::kChat && recipe.train.stage != "sft") ||
      is_one_of(found.source, {DataSource::kShards, DataSource::kPairs}))
    return;
  if (found.source != DataSource::kText && found.format != RecordFormat::kText) return;
  throw data_error(
      "this recipe learns conversations, and '{}' holds {}. Write one conversation a "
      "line: "
      "{{\"messages\": [{{\"role\": \"user\", \"content\": \"...\"}}, {{\"role\": \"assistant\", "
      "\"content\": "
      "\"...\"}}]}}. For plain text there is configs/text.yaml.",
      found.file.string(), found.holds);
}

bool all_generated(const DataConfig& data) {
  return std::ranges::all_of(parse_mixture(data), [](const MixtureEntry& e) { return e.data.generated(); });
}

/// Entries that name their own files do not read those of data.train.
void refuse_unused_files(const DataConfig& data, const std::vector<MixtureEntry>& entries,
                         const Config& config) {
  for (const auto& [key, files] :
       {std::pair{"train", &DataConfig::train}, std::pair{"val", &DataConfig::val}}) {
    const auto reads = [&](const MixtureEntry& e) {
      return !e.data.generated() && e.data.*files == data.*files;
    };
    if (!config.commanded(fmt::format("data.{}", key)) || std::ranges::any_of(entries, reads)) continue;
    throw usage_error(
        "--data.{} names files, and the recipe has a mixture whose entries name their own, or none. Add them "
        "to "
        "it: --data.mixture 'name=mine source=auto {}={} weight=1', after the entries that stay.",
        key, key, fmt::join(data.*files, ","));
  }
}

/// Settings that make sense for what the program generates: short questions of a small alphabet.
std::string drop_settings_of_generated(Recipe& recipe, const Config& config, const InferredSource& found) {
  DataConfig& data = recipe.data;
  std::vector<std::string> changed;
  if (!config.commanded("data.loss_after") && !data.loss_after.empty()) {
    data.loss_after.clear();
    changed.push_back("data.loss_after is empty");
  }
  const bool plain = found.source == DataSource::kText || found.format == RecordFormat::kText;
  if (!config.commanded("data.rows") && plain && data.rows == RowKind::kPad) {
    data.rows = RowKind::kStream;
    changed.push_back("data.rows is stream");
  }
  if (!config.commanded("data.seq_len") && data.seq_len > 0 && data.seq_len < kShortRow) {
    data.seq_len = kShortRow;
    changed.push_back(fmt::format("data.seq_len is {}", data.seq_len));
  }
  int64_t& vocab_size = recipe.tokenizer.vocab_size;
  if (!config.commanded("tokenizer.vocab_size") && recipe.tokenizer.path.empty() && vocab_size > 0 &&
      vocab_size < kSmallVocabulary) {
    vocab_size = TokenizerConfig().vocab_size;
    changed.push_back(fmt::format("tokenizer.vocab_size is {}", vocab_size));
  }
  if (changed.empty()) return {};
  return fmt::format("Settings of the recipe that suit only its generated data are not used: {}.",
                     fmt::join(changed, ", "));
}

}  // namespace

std::vector<std::string> resolve_source(Recipe& recipe, const Config& config) {
  DataConfig& data = recipe.data;
  const bool pairs = recipe.model.translates();
  std::vector<std::string> notes;
  bool replaced = false;
  if (config.commanded("data.train") && !config.commanded("data.mixture") && !data.mixture.empty() &&
      all_generated(data)) {
    notes.push_back("The recipe's mixture of generated data is left out: data.train names files.");
    data.mixture.clear();
    data.source = config.commanded("data.source") ? data.source : DataSource::kAuto;
    replaced = true;
  } else if (config.commanded("data.train") && !config.commanded("data.source") && data.mixture.empty() &&
             !data.reads_files()) {
    data.source = DataSource::kAuto;
    replaced = true;
  }
  if (!data.mixture.empty()) {
    const std::vector<MixtureEntry> entries = parse_mixture(data);
    refuse_unused_files(data, entries, config);
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].data.source != DataSource::kAuto) continue;
      const InferredSource found = infer_source(entries[i].data, pairs);
      data.mixture[i] += fmt::format(" source={}", name_of(found.source));
      notes.push_back(in_words(found) + ".");
    }
    if (data.source == DataSource::kAuto)
      data.source = DataSource::kText;  // no entry is left that would take it
    return notes;
  }
  if (data.source == DataSource::kJsonl) {
    std::vector<fs::path> files;
    std::ranges::copy_if(data.train, std::back_inserter(files),
                         [](const auto& file) { return is_file(file); });
    refuse_csv(files);
  }
  if (data.source != DataSource::kAuto) return notes;
  const InferredSource found = infer_source(data, pairs);
  data.source = found.source;
  if (replaced || found.source != DataSource::kText)
    notes.push_back(in_words(found) + (replaced ? ", in place of the recipe's generated data." : "."));
  demand_conversations(recipe, found);
  if (found.source == DataSource::kPairs && !pairs)
    notes.push_back(fmt::format(
        "A model of the family {} learns the two sides as texts and cannot translate; a translator: "
        "configs/translate.yaml.",
        recipe.model.family));
  if (!replaced) return notes;
  if (!config.commanded("data.format") && data.format != RecordFormat::kAuto && found.format)
    data.format = *found.format;
  if (auto sentence = drop_settings_of_generated(recipe, config, found); !sentence.empty())
    notes.push_back(std::move(sentence));
  return notes;
}

}  // namespace tightloop
