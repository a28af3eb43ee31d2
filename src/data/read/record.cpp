#include "data/read/record.h"

#include <array>

#include "core/files.h"

namespace tightloop {

std::string_view bad_kind_name(BadKind kind) {
  static constexpr std::array<std::string_view, static_cast<size_t>(BadKind::kCount)> kNames{
      "none",        "malformed_json", "wrong_type",    "missing_field",  "invalid_utf8",     "nul_byte",
      "too_long",    "empty",          "no_assistant",  "unknown_role",   "nothing_to_learn", "unpaired",
      "broken_file", "unknown_field",  "control_token", "not_in_template"};
  return kNames[static_cast<size_t>(kind)];
}

Record RecordBatch::operator[](size_t i) const {
  const Entry& entry = entries_[i];
  Record record = entry.record;
  const std::string_view arena = arena_;
  record.bytes = arena.substr(entry.at, entry.size);
  record.second = arena.substr(entry.at + entry.size, entry.second_size);
  return record;
}

void RecordBatch::clear() {
  arena_.clear();
  entries_.clear();
}

void RecordBatch::add(const Record& record) {
  entries_.push_back({arena_.size(), record.bytes.size(), record.second.size(), record});
  arena_.append(record.bytes);
  arena_.append(record.second);
  // What follows the last record must be readable too; the next one overwrites nothing of it that counts.
  if (arena_.capacity() < arena_.size() + kRecordPadding) arena_.reserve(2 * arena_.size() + kRecordPadding);
}

void RecordBatch::move_files(size_t from, uint32_t first) {
  for (size_t i = from; i < entries_.size(); ++i) {
    entries_[i].record.file += first;
    entries_[i].record.second_file += first;
  }
}

uint64_t RecordReader::total_bytes() const {
  uint64_t bytes = 0;
  for (const std::string& file : files())
    if (is_file(file)) bytes += file_bytes(file);
  return bytes;
}

}  // namespace tightloop
