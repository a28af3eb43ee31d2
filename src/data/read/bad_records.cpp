#include "data/read/bad_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "core/counted.h"
#include "core/error.h"
#include "data/read/data_files.h"
#include "data/read/encoding.h"
#include "data/read/json_files.h"

namespace tightloop {

namespace {

constexpr size_t kMostShown = 10, kOfOneReason = 3;

// "a.jsonl:17 (byte 4211): malformed_json: ..." without the place.
std::string_view reason_of(std::string_view one) {
  return one.substr(std::min(one.find("): ", std::min(one.find(" (byte "), one.size())), one.size()));
}

}  // namespace

void BadRecords::keep(const std::string& one) {
  const auto same = std::ranges::count_if(
      first_ones_, [&](const auto& other) { return reason_of(one) == reason_of(other); });
  if (first_ones_.size() < kMostShown && static_cast<size_t>(same) < kOfOneReason) first_ones_.push_back(one);
}

void BadRecords::add(BadKind kind, const std::string& file, uint64_t line, uint64_t byte,
                     const std::string& why, uint64_t bytes) {
  bytes_[0] += bytes;
  ++counts_[static_cast<size_t>(kind)];
  if (!fail_ && first_ones_.size() == kMostShown) return;
  const std::string text = fmt::format("{}:{} (byte {}): {}{}{}", file, line, byte, bad_kind_name(kind),
                                       why.empty() ? "" : ": ", why);
  if (fail_) throw data_error("{}. {} goes on without it.", text, kSkipThem);
  keep(text);
}

void BadRecords::merge(const BadRecords& other) { merge(other.counts_, other.first_ones_, other.bytes_); }

void BadRecords::merge(std::span<const uint64_t> counts, const std::vector<std::string>& first_ones,
                       std::array<uint64_t, 2> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes_[i] += bytes[i];
  for (size_t i = 0; i < std::min(counts_.size(), counts.size()); ++i) counts_[i] += counts[i];
  for (const std::string& one : first_ones) keep(one);
}

uint64_t BadRecords::total() const { return std::accumulate(counts_.begin(), counts_.end(), uint64_t{0}); }

std::string BadRecords::report() const {
  return total() == 0 ? "" : fmt::format("skipped {}: {}", counted(total(), "bad record"), details());
}

std::string BadRecords::details() const {
  std::vector<std::string> kinds;
  for (size_t i = 0; i < counts_.size(); ++i)
    if (counts_[i] > 0)
      kinds.push_back(fmt::format("{} {}", counts_[i], bad_kind_name(static_cast<BadKind>(i))));
  std::string text = fmt::format("{}", fmt::join(kinds, ", "));
  for (const std::string& one : first_ones_) text += "\n  " + one;
  if (total() > first_ones_.size()) text += fmt::format("\n  and {} more", total() - first_ones_.size());
  return text;
}

std::string advice_about_files(const DataConfig& config, bool any_good) {
  if (config.generated() || is_one_of(config.source, {DataSource::kShards, DataSource::kParquet})) return {};
  std::vector<fs::path> paths;
  for (const auto* patterns : {&config.train, &config.train_target, &config.val, &config.val_target})
    std::ranges::move(expand_all(*patterns), std::back_inserter(paths));
  std::string advice = encoding_advice(paths);
  if (advice.empty() && !any_good && config.source == DataSource::kJsonl && !paths.empty() &&
      !holds_json_records(paths[0]))
    advice = fmt::format(
        "'{}' does not look like JSON. data.source jsonl reads an object a line, or a list of them; plain "
        "text is "
        "--data.source text.",
        paths[0].string());
  return advice.empty() ? "" : "\n" + advice;
}

void refuse_too_many_bad(const DataConfig& config, const BadRecords& bad, uint64_t good) {
  constexpr uint64_t kFew = 3, kFewBytes = 1024;
  constexpr double kMostBad = 0.05;
  const uint64_t count = bad.total(), all = count + good;
  const auto [bad_bytes, good_bytes] = bad.bytes();
  const double share = static_cast<double>(bad_bytes) / static_cast<double>(bad_bytes + good_bytes);
  const bool many = count >= kFew && static_cast<double>(count) > kMostBad * static_cast<double>(all);
  const bool much = (count >= kFew || bad_bytes >= kFewBytes) && share > kMostBad;
  if (config.on_bad_record != OnBadRecord::kAuto || count == 0 || (!many && !much && good > 0)) return;
  throw data_error(
      "{} of {} documents{} cannot be used: {}{}\nTo go on without them, however many they are: {}.", count,
      all, many || good == 0 ? "" : fmt::format(", about {:.0f} % of the bytes,", 100 * share), bad.details(),
      advice_about_files(config, good > 0), kSkipThem);
}

}  // namespace tightloop
