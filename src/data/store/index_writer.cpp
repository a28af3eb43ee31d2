#include "data/store/index_writer.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "data/read/byte_stream.h"
#include "data/render/text_cuts.h"
#include "data/store/kept_records.h"
#include "data/store/record_index.h"
#include "data/store/tokenize.h"

namespace tightloop {

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr size_t kBuffered = 1 << 20;

// An array on disk, written element by element.
template <class T>
class ArrayWriter {
 public:
  explicit ArrayWriter(const fs::path& path) : file_(path) {}
  void add(const T& value) {
    buffer_.append(reinterpret_cast<const char*>(&value), sizeof value);
    if (buffer_.size() >= kBuffered) flush();
  }
  std::string close() {
    flush();
    file_.close();
    return hex64(hasher_.digest());
  }

 private:
  void flush() {
    hasher_.update(buffer_.data(), buffer_.size());
    file_.write(buffer_);
    buffer_.clear();
  }
  FileWriter file_;
  Hasher hasher_;
  std::string buffer_;
};

// The entries of a record that is about to be added, each with the number of its tokens.
using Pending = std::vector<std::pair<IndexEntry, uint64_t>>;

class PartWriter : public DocumentSink {
 public:
  PartWriter(const fs::path& folder, const std::string& name, const Pending& pending, size_t& next)
      : pending_(pending),
        next_(next),
        begins_(folder / (name + ".begins")),
        entries_(folder / (name + ".places")),
        documents_(folder / (name + ".documents")) {}

  void extend(std::span<const int32_t> ids, std::span<const uint8_t> mask) override {
    masked_ |= !mask.empty();
    for (size_t taken = 0; taken < ids.size(); ++next_) {
      const auto& [entry, tokens] = pending_[next_];
      taken += tokens;
      if (tokens == 0) continue;
      begins_.add(tokens_);
      entries_.add(entry);
      tokens_ += tokens;
      ++entry_count_;
    }
  }
  void close(int32_t) override {
    // Documents need a table of their own from where one is not just one entry.
    if (!listed_ && entry_count_ != documents_count_ + 1) {
      listed_ = true;
      for (uint64_t i = 0; i < documents_count_; ++i) documents_.add(i);
    }
    if (listed_) documents_.add(first_);
    first_ = entry_count_;
    ++documents_count_;
  }
  json finish() {
    begins_.add(tokens_);
    return {{"places", entry_count_},
            {"documents", documents_count_},
            {"listed", listed_},
            {"masked", masked_},
            {"hashes", {begins_.close(), entries_.close(), documents_.close()}}};
  }
  uint64_t documents() const { return documents_count_; }
  uint64_t tokens() const { return tokens_; }

 private:
  const Pending& pending_;
  size_t& next_;
  ArrayWriter<uint64_t> begins_;
  ArrayWriter<IndexEntry> entries_;
  ArrayWriter<uint64_t> documents_;
  uint64_t entry_count_ = 0, documents_count_ = 0, tokens_ = 0;
  uint64_t first_ = 0;  // entry of the open document
  bool listed_ = false, masked_ = false;
};

class IndexWriter {
 public:
  IndexWriter(const SourceOptions& options, const fs::path& folder)
      : options_(options),
        folder_(folder),
        kept_(folder / "kept"),
        train_(folder, "train", pending_, next_),
        val_(folder, "val", pending_, next_),
        renderer_(make_renderer(options)),
        cutting_(make_cutting_renderer(*renderer_, options.tokenizer)),
        bad_(options.data.on_bad_record == OnBadRecord::kFail) {}

  void read(bool val_records) {
    const double val_share = val_records ? 1 : has_val_records(options_.data) ? 0 : options_.data.holdout;
    SplitSink sink(train_, val_, val_share, 0);
    const TokenizeOptions tokenizing{static_cast<int>(options_.data.tokenizer_threads),
                                     options_.data.tokenizer_batch_size, 0, "Indexing"};
    const auto reader = open_records(options_.data, options_.tasks, val_records);
    const size_t first_file = files_.size();
    for (const std::string& file : reader->files()) {
      files_.push_back(file);
      in_place_.push_back(options_.data.source != DataSource::kParquet && !is_compressed(file));
    }
    if (files_.size() >= IndexEntry::kKept)
      throw data_error("{} files are more than an index holds.", files_.size());
    tokenize(*reader, *cutting_, tokenizing, bad_, [&](const Record& record, const Rendered& rendered) {
      find_entries(record, rendered, static_cast<uint32_t>(first_file));
      next_ = 0;
      sink.add(record, rendered);
      return true;
    });
    sink.finish();
  }

  void finish() {
    kept_.close();
    const json facts{{"files", files_},      {"train", train_.finish()},       {"val", val_.finish()},
                     {"bad", bad_.counts()}, {"first_bad", bad_.first_ones()}, {"bad_bytes", bad_.bytes()}};
    write_file_whole(folder_ / "index.json", facts.dump(2));
    log::info("Indexed {} documents, {} tokens, in {}.",
              human_count(static_cast<double>(train_.documents() + val_.documents())),
              human_count(static_cast<double>(train_.tokens() + val_.tokens())),
              human_seconds(std::chrono::duration<double>(Clock::now() - start_).count()));
  }

 private:
  IndexEntry entry_of(std::string_view bytes, uint32_t file, uint64_t byte, uint32_t bits) {
    if (bytes.size() > UINT32_MAX)
      throw data_error("'{}': the record at byte {} is too long for an index. Use data.tokenize: start.",
                       files_[file], byte);
    const auto size = static_cast<uint32_t>(bytes.size());
    if (in_place_[file]) return {byte, size, bits | file};
    return {kept_.add(bytes), size, bits | IndexEntry::kKept};
  }

  void find_entries(const Record& record, const Rendered& rendered, uint32_t first_file) {
    pending_.clear();
    const uint32_t file = first_file + record.file;
    const uint32_t last = record.last ? IndexEntry::kLast : 0;
    if (!rendered.cuts.empty()) {
      IndexEntry whole = rendered.text.empty()
                             ? entry_of(record.bytes, file, record.byte, IndexEntry::kPart)
                             : IndexEntry{kept_.add(rendered.text), 0, IndexEntry::kPart | IndexEntry::kKept};
      const auto end =
          static_cast<uint32_t>(rendered.text.empty() ? record.bytes.size() : rendered.text.size());
      TextCut from;
      const auto add = [&](TextCut to, uint32_t bits) {
        pending_.push_back(
            {{whole.byte + from.byte, to.byte - from.byte, whole.bits | bits}, to.token - from.token});
        from = to;
      };
      for (const TextCut& cut : rendered.cuts) add(cut, 0);
      return add({end, static_cast<uint32_t>(rendered.ids.size())}, last);
    }
    const uint32_t bits = last | (record.first ? IndexEntry::kFirst : 0);
    pending_.push_back({entry_of(record.bytes, file, record.byte, bits), rendered.ids.size()});
    if (rendered.second.empty()) return;
    const IndexEntry second = record.second.empty() ? IndexEntry{0, 0, IndexEntry::kSecond}
                                                    : entry_of(record.second, first_file + record.second_file,
                                                               record.second_byte, IndexEntry::kSecond);
    pending_.push_back({second, rendered.second.size()});
  }

  const SourceOptions& options_;
  const fs::path folder_;
  std::vector<std::string> files_;
  std::vector<bool> in_place_;
  KeptWriter kept_;
  Pending pending_;
  size_t next_ = 0;
  PartWriter train_, val_;
  std::unique_ptr<Renderer> renderer_, cutting_;
  BadRecords bad_;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

void write_index(const SourceOptions& options, const fs::path& folder) {
  IndexWriter writer(options, folder);
  writer.read(false);
  if (has_val_records(options.data)) writer.read(true);
  writer.finish();
}

}  // namespace tightloop
