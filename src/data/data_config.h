#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"

namespace tightloop {

/// What the files hold, or what is made without files (data/store/source.cpp has the table of what each
/// reads).
enum class DataSource {
  kAuto,
  kText,
  kJsonl,
  kParquet,
  kPairs,
  kShards,
  kTasks,
  kSpelling,
  kToyPairs,
  kRandom,
};
template <>
inline constexpr auto kChoices<DataSource> = std::to_array<Choice<DataSource>>({
    {DataSource::kAuto, "auto", "what the first file looks like (a run's config.yaml names it)"},
    {DataSource::kText, "text"},
    {DataSource::kJsonl, "jsonl"},
    {DataSource::kParquet, "parquet"},
    {DataSource::kPairs, "pairs", "sentences and their translations"},
    {DataSource::kShards, "shards", "what `tightloop prepare` made"},
    {DataSource::kTasks, "tasks", "generated questions, no files"},
    {DataSource::kSpelling, "spelling", "generated conversations about words, no files"},
    {DataSource::kToyPairs, "toy_pairs", "generated pairs, no files"},
    {DataSource::kRandom, "random", "random ids to measure speed with"},
});

enum class HoldoutBy { kHash, kTail, kAuto };
template <>
inline constexpr auto kChoices<HoldoutBy> = std::to_array<Choice<HoldoutBy>>({
    {HoldoutBy::kHash, "hash", "documents by their hash"},
    {HoldoutBy::kTail, "tail",
     "the tail of the token stream (a fraction of it, at least two rows where that is no more than 30 %)"},
    {HoldoutBy::kAuto, "auto", "of text files the tail, else by hash"},
});

enum class TokenizeWhen { kAuto, kStart, kLive };
template <>
inline constexpr auto kChoices<TokenizeWhen> = std::to_array<Choice<TokenizeWhen>>({
    {TokenizeWhen::kAuto, "auto", "live where the files are larger than 1 GiB and there is no `cache`"},
    {TokenizeWhen::kStart, "start", "all at the start"},
    {TokenizeWhen::kLive, "live", "by the threads that prepare batches, from an index"},
});

/// Where one document of a text file ends.
enum class DocumentEnd { kFile, kBlankLine, kLine, kSeparator };
template <>
inline constexpr auto kChoices<DocumentEnd> = std::to_array<Choice<DocumentEnd>>({
    {DocumentEnd::kFile, "file"},
    {DocumentEnd::kBlankLine, "blank_line"},
    {DocumentEnd::kLine, "line"},
    {DocumentEnd::kSeparator, "separator"},
});

/// What a JSON record or a Parquet row holds.
enum class RecordFormat { kAuto, kText, kChat, kQuestion, kChoice, kGsm8k };
template <>
inline constexpr auto kChoices<RecordFormat> = std::to_array<Choice<RecordFormat>>({
    {RecordFormat::kAuto, "auto", "by the fields it has"},
    {RecordFormat::kText, "text"},
    {RecordFormat::kChat, "chat", "a conversation, an instruction or a prompt with its answer"},
    {RecordFormat::kQuestion, "question"},
    {RecordFormat::kChoice, "choice", "multiple choice"},
    {RecordFormat::kGsm8k, "gsm8k", "a question whose answer holds calculations <<1+1=2>>"},
});

/// What is learned of a record with `chosen` and `rejected`.
enum class Preferences { kRefuse, kChosen, kRejected };
template <>
inline constexpr auto kChoices<Preferences> = std::to_array<Choice<Preferences>>({
    {Preferences::kRefuse, "refuse", "the record is bad"},
    {Preferences::kChosen, "chosen"},
    {Preferences::kRejected, "rejected"},
});

/// How documents become rows (sequences).
enum class RowKind { kStream, kPad, kPack, kFitCrop, kFitPad };
template <>
inline constexpr auto kChoices<RowKind> = std::to_array<Choice<RowKind>>({
    {RowKind::kStream, "stream", "one token stream cut into rows"},
    {RowKind::kPad, "pad", "one padded row each"},
    {RowKind::kPack, "pack", "several packed into a row"},
    {RowKind::kFitCrop, "fit_crop",
     "nanochat's base: the longest that fits, and the rest of the row from one that is cut off"},
    {RowKind::kFitPad, "fit_pad", "nanochat's SFT: the longest that fits, and the rest of the row empty"},
});

enum class DocumentOrder { kShuffled, kFiles, kNanochat };
template <>
inline constexpr auto kChoices<DocumentOrder> = std::to_array<Choice<DocumentOrder>>({
    {DocumentOrder::kShuffled, "shuffled", "by train.seed, rows in another order in each pass"},
    {DocumentOrder::kFiles, "files", "as the files have them, in every pass"},
    {DocumentOrder::kNanochat, "nanochat",
     "as nanochat's SFT mixes its tasks, by the generators of NumPy and Python with its seed"},
});

enum class OnBadRecord { kAuto, kSkip, kFail };
template <>
inline constexpr auto kChoices<OnBadRecord> = std::to_array<Choice<OnBadRecord>>({
    {OnBadRecord::kAuto, "auto",
     "skip them, and stop where they are more than 5 % of all records, or of their bytes, or where two files "
     "of pairs have different numbers of lines"},
    {OnBadRecord::kSkip, "skip", "skip them"},
    {OnBadRecord::kFail, "fail", "stop at the first one"},
});

/// The section `data`: what is read, how it becomes rows, and who does the work.
struct DataConfig {
  DataSource source = DataSource::kText;
  std::vector<std::string> train, val, train_target, val_target;
  std::string missing;
  double holdout = 0.05;
  HoldoutBy holdout_by = HoldoutBy::kHash;
  std::vector<std::string> mixture;
  TokenizeWhen tokenize = TokenizeWhen::kAuto;
  std::string cache;
  DocumentEnd documents = DocumentEnd::kBlankLine;
  std::string separator = "<|endoftext|>";
  RecordFormat format = RecordFormat::kAuto;
  std::string text_field = "text", messages_field, question_field = "question", answer_field = "answer";
  std::string choices_field = "choices", source_field = "source", target_field = "target";
  std::vector<std::string> ignore_fields;
  Preferences preferences = Preferences::kRefuse;
  RowKind rows = RowKind::kStream;
  DocumentOrder order = DocumentOrder::kShuffled;
  int64_t seq_len = 256;
  int64_t batch_tokens = 4096;
  int64_t bucket = 0;
  std::string loss_after, begin_token = "none", end_token = "auto";
  int64_t num_workers = 2;
  int64_t prefetch_factor = 2;
  bool pin_memory = true;
  int64_t tokenizer_threads = 0;
  int64_t tokenizer_batch_size = 128;
  OnBadRecord on_bad_record = OnBadRecord::kAuto;
  int64_t max_record_bytes = int64_t{64} << 20;

  /// Whether it reads those of `train` and `val`.
  bool reads_files() const;
  /// Whether records are made here, without files.
  bool generated() const;
  /// Whether they are sentences and their translations.
  bool holds_pairs() const;

  void describe(Fields& fields);
};

}  // namespace tightloop
