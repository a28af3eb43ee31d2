#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/data_config.h"
#include "data/read/record.h"

namespace tightloop {

/// What a user says to leave bad records out.
inline constexpr const char* kSkipThem =
    "--data.on_bad_record skip (of 'tokenizer train': --on-bad-record skip)";

/// Counts what was skipped, by kind, and remembers the first ten, at most three of one reason; or stops at
/// the first.
class BadRecords {
 public:
  /// With `fail`, add() throws a data error that names the record.
  explicit BadRecords(bool fail = false) : fail_(fail) {}

  void add(BadKind kind, const std::string& file, uint64_t line, uint64_t byte, const std::string& why,
           uint64_t bytes = 0);
  /// Bytes of a good record: what the bad ones are a share of.
  void add_good(uint64_t bytes) { bytes_[1] += bytes; }

  /// Adds what another one counted.
  void merge(const BadRecords& other);
  /// The same from what was written down: counts by kind, the first ones, and bytes().
  void merge(std::span<const uint64_t> counts, const std::vector<std::string>& first_ones,
             std::array<uint64_t, 2> bytes);

  uint64_t total() const;
  std::span<const uint64_t> counts() const { return counts_; }
  /// Of the bad records, and of the good ones; about, where a file could not be read to its end.
  std::array<uint64_t, 2> bytes() const { return bytes_; }
  uint64_t count(BadKind kind) const { return counts_[static_cast<size_t>(kind)]; }
  /// "a.jsonl:17 (byte 4211): malformed_json: ..."
  const std::vector<std::string>& first_ones() const { return first_ones_; }
  /// For the log: how many of which kind, then the first ones. Empty when there is nothing to say.
  std::string report() const;
  /// The same without the first words.
  std::string details() const;

 private:
  void keep(const std::string& one);

  bool fail_;
  std::array<uint64_t, static_cast<size_t>(BadKind::kCount)> counts_{};
  std::array<uint64_t, 2> bytes_{};
  std::vector<std::string> first_ones_;
};

/// With data.on_bad_record `auto`: a data error where more than 5 % of the documents or of their bytes (and
/// at least 3 documents, or a kilobyte, or all) could not be used. It names what they have in common, such as
/// another encoding.
void refuse_too_many_bad(const DataConfig& config, const BadRecords& bad, uint64_t good);
/// What the files seem to be that are no UTF-8 text, or no JSON where that is read and nothing was good: a
/// line of its own; empty where there is nothing to say.
std::string advice_about_files(const DataConfig& config, bool any_good = false);

}  // namespace tightloop
