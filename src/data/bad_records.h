#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/record.h"

namespace tightloop {

/// Counts what was skipped, by kind, and remembers the first ten; or stops at the first.
class BadRecords {
 public:
  /// With `fail`, add() throws a data error that names the record.
  explicit BadRecords(bool fail = false) : fail_(fail) {}

  void add(BadKind kind, const std::string& file, uint64_t line, uint64_t byte, const std::string& why);

  /// Adds what another one counted.
  void merge(const BadRecords& other);
  /// The same from what was written down: counts by kind, and the first ones.
  void merge(std::span<const uint64_t> counts, const std::vector<std::string>& first_ones);

  uint64_t total() const;
  std::span<const uint64_t> counts() const { return counts_; }
  uint64_t count(BadKind kind) const { return counts_[static_cast<size_t>(kind)]; }
  /// "a.jsonl:17 (byte 4211): malformed_json: ..."
  const std::vector<std::string>& first_ones() const { return first_ones_; }
  /// For the log: how many of which kind, then the first ones. Empty when there is nothing to say.
  std::string report() const;

 private:
  bool fail_;
  std::array<uint64_t, static_cast<size_t>(BadKind::kCount)> counts_{};
  std::vector<std::string> first_ones_;
};

}  // namespace tightloop
