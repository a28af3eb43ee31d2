#include "data/bad_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace tightloop {

namespace {
constexpr size_t kShown = 10;
}

void BadRecords::add(BadKind kind, const std::string& file, uint64_t line, uint64_t byte,
                     const std::string& why) {
  ++counts_[static_cast<size_t>(kind)];
  if (!fail_ && first_ones_.size() == kShown) return;
  const std::string text = fmt::format("{}:{} (byte {}): {}{}{}", file, line, byte, bad_kind_name(kind),
                                       why.empty() ? "" : ": ", why);
  if (fail_) throw data_error("{}. data.on_bad_record: skip goes on without it.", text);
  first_ones_.push_back(text);
}

void BadRecords::merge(const BadRecords& other) { merge(other.counts_, other.first_ones_); }

void BadRecords::merge(std::span<const uint64_t> counts, const std::vector<std::string>& first_ones) {
  for (size_t i = 0; i < std::min(counts_.size(), counts.size()); ++i) counts_[i] += counts[i];
  for (const std::string& one : first_ones)
    if (first_ones_.size() < kShown) first_ones_.push_back(one);
}

uint64_t BadRecords::total() const { return std::accumulate(counts_.begin(), counts_.end(), uint64_t{0}); }

std::string BadRecords::report() const {
  if (total() == 0) return {};
  std::vector<std::string> kinds;
  for (size_t i = 0; i < counts_.size(); ++i)
    if (counts_[i] > 0)
      kinds.push_back(fmt::format("{} {}", counts_[i], bad_kind_name(static_cast<BadKind>(i))));
  std::string text = fmt::format("skipped {} bad records: {}", total(), fmt::join(kinds, ", "));
  for (const std::string& one : first_ones_) text += "\n  " + one;
  if (total() > kShown) text += fmt::format("\n  and {} more", total() - kShown);
  return text;
}

}  // namespace tightloop
