#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tightloop {

/// Why a record cannot be used. The names are what users see in reports (bad_kind_name).
enum class BadKind : uint8_t {
  kNone,
  kMalformedJson,
  kWrongType,
  kMissingField,
  kInvalidUtf8,
  kNulByte,
  kTooLong,
  kEmpty,
  kNoAssistant,
  kUnknownRole,
  kNothingToLearn,
  kUnpaired,
  kBrokenFile,
  kUnknownField,
  kControlToken,
  kNotInTemplate,
  kCount,
};

std::string_view bad_kind_name(BadKind kind);

/// Thrown inside of renderers, never out of them; by ChatTemplate, read_choice() and what makes texts.
struct BadRecord {
  BadKind kind;
  std::string why;
};

/// One thing to learn from as it is in a file: a text, a line of JSON, a pair of sentences.
struct Record {
  std::string_view bytes;       // followed by at least kRecordPadding readable bytes
  std::string_view second;      // of a pair: the translation
  uint32_t file = 0;            // index into RecordReader::files()
  uint64_t index = 0;           // how many came before it, over all files; set by tokenize()
  uint64_t line = 1, byte = 0;  // where it starts; of a compressed file, after decompression
  uint32_t second_file = 0;     // where `second` starts, if it has a place of its own
  uint64_t second_byte = 0;
  BadKind bad = BadKind::kNone;  // the reader itself could not take it; `bytes` is then a short word about it
  uint64_t lost = 0;             // of such a one: bytes that are passed over with it, about
  bool first = true, last = true;  // long documents come in pieces that belong together
  uint64_t size() const { return bad == BadKind::kNone ? bytes.size() + second.size() : lost; }
};

inline constexpr size_t kRecordPadding = 64;

/// Records and the memory they live in. Reused from batch to batch.
class RecordBatch {
 public:
  size_t size() const { return entries_.size(); }
  size_t bytes() const { return arena_.size(); }
  Record operator[](size_t i) const;
  void clear();
  /// Copies the bytes; `record.bytes` and `record.second` may point anywhere.
  void add(const Record& record);
  /// Of the records from this one on, counts their files from `first`.
  void move_files(size_t from, uint32_t first);

 private:
  struct Entry {
    size_t at, size, second_size;
    Record record;
  };
  std::string arena_;
  std::vector<Entry> entries_;
};

/// Records in order, from the first file to the last. Memory does not grow with the files.
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  /// Adds records until there are `records` of them or `bytes` bytes. False when there was nothing more to
  /// add.
  virtual bool read(RecordBatch& batch, size_t records, size_t bytes) = 0;
  virtual const std::vector<std::string>& files() const = 0;
  /// Of what files() hold on disk (compressed, where they are), so far and in all; both are 0 where records
  /// come from no files. For lines of progress, from any thread.
  virtual uint64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }
  uint64_t total_bytes() const;

 protected:
  std::atomic<uint64_t> bytes_read_{0};
};

}  // namespace tightloop
