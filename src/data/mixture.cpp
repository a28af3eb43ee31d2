#include "data/mixture.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/config.h"
#include "core/counted.h"
#include "core/error.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop {

namespace {

MixtureEntry parse_entry(const DataConfig& around, const std::string& text, size_t number) {
  MixtureEntry entry;
  entry.data = around;
  entry.data.mixture.clear();
  entry.name = fmt::format("source{}", number);
  Fields fields;
  entry.data.describe(fields);
  fields.add("name", entry.name, "What metrics call it");
  fields
      .add("weight", entry.weight,
           "Its share of the documents of an epoch, next to the weights of the others")
      .range(0, 1e9);
  fields.add("epochs", entry.epochs, "How often it comes in one pass").range(0, 1e6);
  fields.add("cap", entry.cap, "The most documents to use of it").range(0, 1e15);
  const std::string where = fmt::format("data.mixture, entry {}", number);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    begin = end + 1;
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    if (equals == std::string::npos) throw usage_error("{}: '{}' is not of the form key=value.", where, item);
    const std::string key = item.substr(0, equals);
    auto& all = fields.all();
    const auto field = std::ranges::find_if(all, [&](const Field& f) { return f.name() == key; });
    if (field == all.end()) {
      std::vector<std::string> names;
      for (const Field& f : all) names.push_back(f.name());
      const auto guess = nearest(key, names);
      throw usage_error("{}: unknown key '{}'.{}", where, key,
                        guess ? fmt::format(" Did you mean '{}'?", *guess) : "");
    }
    field->set(item.substr(equals + 1), where);
  }
  return entry;
}

/// Metrics are kept by name: two of one name would be one.
void check_names(const std::vector<MixtureEntry>& entries) {
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!is_utf8(entries[i].name)) throw usage_error("data.mixture, entry {}: its name is not UTF-8.", i + 1);
    const auto same = std::ranges::find(entries, entries[i].name, &MixtureEntry::name) - entries.begin();
    if (same < static_cast<ptrdiff_t>(i))
      throw usage_error("data.mixture: entries {} and {} have the name '{}'. Give one of them another.",
                        same + 1, i + 1, entries[i].name);
  }
}

}  // namespace

std::vector<MixtureEntry> parse_mixture(const DataConfig& config) {
  std::vector<MixtureEntry> entries;
  for (const std::string& text : config.mixture)
    entries.push_back(parse_entry(config, text, entries.size() + 1));
  check_names(entries);
  const auto weighted =
      std::ranges::count_if(entries, [](const MixtureEntry& entry) { return entry.weight > 0; });
  if (weighted != 0 && weighted != static_cast<int64_t>(entries.size())) {
    throw usage_error("data.mixture: give a weight to every entry, or to none.");
  }
  const auto pairs =
      std::ranges::count_if(entries, [](const MixtureEntry& entry) { return entry.data.holds_pairs(); });
  if (pairs != 0 && pairs != static_cast<int64_t>(entries.size()))
    throw usage_error("data.mixture: pairs of sentences cannot be mixed with other sources.");
  return entries;
}

MixtureText mixture_text(const std::vector<MixtureEntry>& entries, const std::vector<uint64_t>& documents,
                         const std::vector<double>& passes) {
  constexpr double kMany = 4;
  MixtureText text;
  double all = 0;
  for (size_t i = 0; i < entries.size(); ++i) all += static_cast<double>(documents[i]) * passes[i];
  for (size_t i = 0; i < entries.size(); ++i) {
    const double part = static_cast<double>(documents[i]) * passes[i] / std::max(all, 1.0);
    text.lines.push_back(
        fmt::format("'{}': {}, {:.3g} % of an epoch's documents, which has them {:.3g} times.",
                    entries[i].name, counted(documents[i], "document"), 100 * part, passes[i]));
    if (entries[i].weight > 0 && passes[i] > kMany)
      text.warnings.push_back(fmt::format(
          "data.mixture: an epoch repeats the {} of '{}' {:.3g} times, for weights are shares of the "
          "documents: they may be learned by heart. Give it a smaller weight, or the others a cap.",
          counted(documents[i], "document"), entries[i].name, passes[i]));
  }
  return text;
}

bool loads_pairs(const DataConfig& config) {
  return config.mixture.empty() ? config.holds_pairs() : parse_mixture(config)[0].data.holds_pairs();
}

}  // namespace tightloop
