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
  const std::string& format = config.format;
  if (format == "text") return {config.text_field};
  std::vector<std::string> columns;
  for (const std::string_view name : fields_with_meaning(format)) columns.emplace_back(name);
  if (format != "chat") columns.insert(columns.end(), {config.question_field, config.answer_field});
  if (format == "choice" || format == "auto") columns.push_back(config.choices_field);
  if (format == "auto") columns.push_back(config.text_field);
  if (format == "chat" || format == "auto") {
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

}  // namespace

std::unique_ptr<RecordReader> make_reader(const DataConfig& config, bool val) {
  const auto max_bytes = static_cast<uint64_t>(config.max_record_bytes);
  const std::vector<fs::path> paths = expand_all(val ? config.val : config.train);
  if (config.source == "text") {
    return std::make_unique<TextReader>(paths, TextOptions{config.documents, config.separator, max_bytes});
  }
  if (config.source == "pairs") {
    const auto& targets = val ? config.val_target : config.train_target;
    if (!targets.empty()) return std::make_unique<ParallelRecords>(paths, expand_all(targets), max_bytes);
    if (!is_json(paths)) return std::make_unique<TsvRecords>(paths, max_bytes);
  } else if (config.source == "parquet") {
    return open_parquet(paths, columns_of(config), max_bytes);
  } else if (config.source != "jsonl") {
    throw usage_error("data.source {} has no records to read.", config.source);
  }
  return read_json_files(paths, max_bytes);
}

bool pairs_are_json(const DataConfig& config) {
  return config.source == "toy_pairs" || (config.train_target.empty() && is_json(expand_all(config.train)));
}

std::unique_ptr<RecordReader> make_question_reader(std::vector<Question> questions) {
  return std::make_unique<QuestionReader>(std::move(questions));
}

std::unique_ptr<RecordReader> open_records(const SourceOptions& options, bool val) {
  const std::string& source = options.data.source;
  if (source == "tasks") {
    return make_question_reader(val ? held_out_questions(options.tasks) : training_questions(options.tasks));
  }
  if (source == "spelling") return make_spelling_reader(options.tasks, val);
  if (source == "toy_pairs") return make_toy_pair_reader(options.tasks, val);
  return make_reader(options.data, val);
}

bool has_val_records(const DataConfig& config) { return config.generated() || !config.val.empty(); }

std::unique_ptr<Renderer> make_renderer(const SourceOptions& options) {
  const DataConfig& data = options.data;
  if (data.source == "text" || data.source == "tasks") return make_text_renderer(data, options.tokenizer);
  if (data.holds_pairs()) {
    const Tokenizer& target = options.target_tokenizer ? *options.target_tokenizer : options.tokenizer;
    return make_pair_renderer(data, options.tokenizer, target, pairs_are_json(data));
  }
  // Texts need no template, and the tokenizer may have no tokens for one.
  std::shared_ptr<const ChatTemplate> chat;
  std::string why_no_chat;
  if (data.format != "text") {
    try {
      chat = std::make_shared<ChatTemplate>(options.chat, options.tokenizer);
    } catch (const Error& error) {
      if (data.format != "auto") throw;
      why_no_chat = error.what();
    }
  }
  return make_json_renderer(data, options.tokenizer, std::move(chat), why_no_chat);
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
  if (!open_) open_ = is_held_out(record.bytes, val_share_) ? &val_ : &train_;
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
