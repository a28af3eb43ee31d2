#include "data/store/source.h"

#include <algorithm>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "data/generate/spelling.h"
#include "data/generate/toy_pairs.h"
#include "data/read/byte_stream.h"
#include "data/read/data_files.h"
#include "data/read/held_out.h"
#include "data/read/json_files.h"
#include "data/read/pair_reader.h"
#include "data/read/parquet.h"
#include "data/read/text_reader.h"

namespace tightloop {

namespace {

class QuestionReader : public RecordReader {
 public:
  explicit QuestionReader(std::vector<Question> questions) : questions_(std::move(questions)) {}
  bool read(RecordBatch& batch, size_t records, size_t bytes) override {
    const size_t before = batch.size();
    for (; next_ < questions_.size() && batch.size() < records && batch.bytes() < bytes; ++next_) {
      const std::string line = questions_[next_].line();
      Record record;
      record.bytes = line;
      record.line = next_ + 1;
      batch.add(record);
    }
    return batch.size() > before;
  }
  const std::vector<std::string>& files() const override { return names_; }

 private:
  std::vector<Question> questions_;
  size_t next_ = 0;
  std::vector<std::string> names_{"tasks"};
};

// The columns that the format may ask for, and those that a record must not have.
std::vector<std::string> columns_of(const DataConfig& config) {
  const RecordFormat format = config.format;
  if (format == RecordFormat::kText) return {config.text_field};
  std::vector<std::string> columns;
  for (const std::string_view name : fields_with_meaning(format)) columns.emplace_back(name);
  if (format != RecordFormat::kChat)
    columns.insert(columns.end(), {config.question_field, config.answer_field});
  if (is_one_of(format, {RecordFormat::kChoice, RecordFormat::kAuto}))
    columns.push_back(config.choices_field);
  if (format == RecordFormat::kAuto) columns.push_back(config.text_field);
  if (is_one_of(format, {RecordFormat::kChat, RecordFormat::kAuto})) {
    if (config.messages_field.empty())
      columns.insert(columns.end(), {"messages", "conversations", "instruction", "input", "context", "output",
                                     "response", "history", "prompt", "completion"});
    else
      columns.push_back(config.messages_field);
  }
  return columns;
}

bool is_json(const std::vector<fs::path>& paths) {
  if (paths.empty()) return false;
  const std::string start = first_marks(head_of(paths[0]));
  return start.starts_with('[') || start.starts_with('{');
}

std::unique_ptr<RecordReader> open_text(const DataConfig& config, const TasksConfig&, bool val) {
  return std::make_unique<TextReader>(
      expand_all(val ? config.val : config.train),
      TextOptions{config.documents, config.separator, static_cast<uint64_t>(config.max_record_bytes)});
}

std::unique_ptr<RecordReader> open_jsonl(const DataConfig& config, const TasksConfig&, bool val) {
  return read_json_files(expand_all(val ? config.val : config.train), config.max_record_bytes);
}

std::unique_ptr<RecordReader> open_parquet_files(const DataConfig& config, const TasksConfig&, bool val) {
  return open_parquet(expand_all(val ? config.val : config.train), columns_of(config),
                      config.max_record_bytes);
}

std::unique_ptr<RecordReader> open_pairs(const DataConfig& config, const TasksConfig& tasks, bool val) {
  const std::vector<fs::path> paths = expand_all(val ? config.val : config.train);
  const auto max_bytes = static_cast<uint64_t>(config.max_record_bytes);
  const auto& targets = val ? config.val_target : config.train_target;
  if (!targets.empty())
    return std::make_unique<ParallelRecords>(paths, expand_all(targets), max_bytes,
                                             /*must_agree=*/config.on_bad_record != OnBadRecord::kSkip);
  if (!is_json(paths)) {
    if (val && !config.train_target.empty() && head_of(paths.front()).find('\t') == std::string::npos)
      throw data_error(
          "'{}' (data.val) has sentences, and no tabs with translations behind them. Name the file of their "
          "translations: --data.val_target FILE.",
          paths.front().string());
    return std::make_unique<TsvRecords>(paths, max_bytes);
  }
  return open_jsonl(config, tasks, val);
}

std::unique_ptr<RecordReader> open_tasks(const DataConfig&, const TasksConfig& tasks, bool val) {
  return std::make_unique<QuestionReader>(val ? held_out_questions(tasks) : training_questions(tasks));
}

std::unique_ptr<RecordReader> open_spelling(const DataConfig&, const TasksConfig& tasks, bool val) {
  return make_spelling_reader(tasks, val);
}

std::unique_ptr<RecordReader> open_toy_pairs(const DataConfig&, const TasksConfig& tasks, bool val) {
  return make_toy_pair_reader(tasks, val);
}

std::unique_ptr<Renderer> text_renderer(const SourceOptions& options) {
  return make_text_renderer(options.data, options.tokenizer);
}

std::unique_ptr<Renderer> json_renderer(const SourceOptions& options) {
  const DataConfig& data = options.data;
  // Texts need no template, and the tokenizer may have no tokens for one.
  std::shared_ptr<const ChatTemplate> chat;
  std::string why_no_chat;
  if (data.format != RecordFormat::kText) {
    try {
      chat = std::make_shared<ChatTemplate>(options.chat, options.tokenizer);
    } catch (const Error& error) {
      if (data.format != RecordFormat::kAuto) throw;
      why_no_chat = error.what();
    }
  }
  return make_json_renderer(data, options.tokenizer, std::move(chat), why_no_chat);
}

std::unique_ptr<Renderer> pair_renderer(const SourceOptions& options) {
  const Tokenizer& target = options.target_tokenizer ? *options.target_tokenizer : options.tokenizer;
  return make_pair_renderer(options.data, options.tokenizer, target, pairs_are_json(options.data));
}

/// All that is different from source to source. A new one is a row here and a value of DataSource.
struct SourceRow {
  DataSource source;
  bool reads_files;  // those of data.train and data.val
  RecordKind records = RecordKind::kNone;
  std::unique_ptr<RecordReader> (*open)(const DataConfig&, const TasksConfig&, bool val) = nullptr;
  std::unique_ptr<Renderer> (*make_renderer)(const SourceOptions&) = nullptr;
};
constexpr SourceRow kSources[] = {
    {DataSource::kText, true, RecordKind::kText, open_text, text_renderer},
    {DataSource::kJsonl, true, RecordKind::kJson, open_jsonl, json_renderer},
    {DataSource::kParquet, true, RecordKind::kJson, open_parquet_files, json_renderer},
    {DataSource::kPairs, true, RecordKind::kPair, open_pairs, pair_renderer},
    {DataSource::kShards, true},
    {DataSource::kTasks, false, RecordKind::kText, open_tasks, text_renderer},
    {DataSource::kSpelling, false, RecordKind::kJson, open_spelling, json_renderer},
    {DataSource::kToyPairs, false, RecordKind::kPair, open_toy_pairs, pair_renderer},
    {DataSource::kRandom, false},
    {DataSource::kAuto, true},
};

const SourceRow& row_of(DataSource source) {
  return *std::ranges::find(kSources, source, &SourceRow::source);
}

const SourceRow& row_with_records(DataSource source) {
  const SourceRow& row = row_of(source);
  if (!row.open) throw usage_error("data.source {} has no records to read.", name_of(source));
  return row;
}

}  // namespace

RecordKind records_of(DataSource source) { return row_of(source).records; }

bool DataConfig::reads_files() const { return row_of(source).reads_files; }

bool DataConfig::generated() const {
  const SourceRow& row = row_of(source);
  return row.open && !row.reads_files;
}

bool DataConfig::holds_pairs() const { return row_of(source).records == RecordKind::kPair; }

std::unique_ptr<RecordReader> open_records(const DataConfig& config, const TasksConfig& tasks, bool val) {
  return row_with_records(config.source).open(config, tasks, val);
}

bool pairs_are_json(const DataConfig& config) {
  return config.generated() || (config.train_target.empty() && is_json(expand_all(config.train)));
}

bool has_val_records(const DataConfig& config) { return config.generated() || !config.val.empty(); }

std::unique_ptr<Renderer> make_renderer(const SourceOptions& options) {
  return row_with_records(options.data.source).make_renderer(options);
}

uint64_t tokens_fingerprint(const SourceOptions& options) {
  const uint64_t source = options.tokenizer.fingerprint();
  if (!options.target_tokenizer || options.target_tokenizer->fingerprint() == source) return source;
  return hash64(hex64(source) + hex64(options.target_tokenizer->fingerprint()));
}

void save_tokenizers(const SourceOptions& options, const fs::path& folder) {
  make_folder(folder / "tokenizer");
  options.tokenizer.save(folder / "tokenizer");
  if (tokens_fingerprint(options) == options.tokenizer.fingerprint()) return;
  make_folder(folder / "tokenizer_target");
  options.target_tokenizer->save(folder / "tokenizer_target");
}

int64_t vocab_size_of(const SourceOptions& options) {
  const int64_t target = options.target_tokenizer ? options.target_tokenizer->vocab_size() : 0;
  return std::max<int64_t>(options.tokenizer.vocab_size(), target);
}

void SplitSink::add(const Record& record, const Rendered& rendered) {
  if (record.first) finish();
  if (!open_) {
    open_ = is_held_out(record.bytes, val_share_) ? &val_ : &train_;
    open_->set_origin(record.file, record.line);
  }
  open_->extend(rendered.ids, rendered.mask);
  if (!rendered.second.empty()) {  // the translation is the next document
    open_->close(source_);
    open_->extend(rendered.second, {});
  }
  if (!record.last) return;
  finish();
}

void SplitSink::finish() {
  if (open_) open_->close(source_);
  open_ = nullptr;
}

}  // namespace tightloop
