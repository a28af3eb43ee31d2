#include "dist/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/hash.h"

namespace tightloop {

namespace {

using nlohmann::json;

constexpr const char* kNone = "none";
constexpr size_t kShown = 6;

std::string to_text(const std::vector<Fact>& facts) {
  json list = json::array();
  for (const Fact& fact : facts)
    list.push_back({fact.what, fact.value, static_cast<int>(fact.code), fact.known_as});
  return list.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<Fact> to_facts(const std::string& text) {
  std::vector<Fact> facts;
  for (const json& fact : json::parse(text))
    facts.push_back({fact[0].get<std::string>(), fact[1].get<std::string>(),
                     static_cast<ExitCode>(fact[2].get<int>()), fact[3].get<std::string>()});
  return facts;
}

/// The same for processes whose facts are, whatever they know them as.
std::string hash_of(std::vector<Fact> facts) {
  for (Fact& fact : facts) fact.known_as.clear();
  return hex64(hash64(to_text(facts)));
}

/// The one of that kind.
Fact fact_of(const std::vector<Fact>& facts, const std::string& what) {
  const auto found = std::ranges::find(facts, what, &Fact::what);
  return found == facts.end() ? Fact{what, kNone} : *found;
}

std::string said(const Fact& fact) {
  return fact.known_as.empty() ? fact.value : fmt::format("{}, {}", fact.known_as, fact.value);
}

/// What any of them names, in order.
std::vector<Fact> all_of(const std::vector<std::vector<Fact>>& facts) {
  std::vector<Fact> all;
  for (const auto& list : facts)
    for (const Fact& fact : list)
      if (std::ranges::find(all, fact.what, &Fact::what) == all.end()) all.push_back(fact);
  return all;
}

}  // namespace

std::optional<Error> disagreement(const std::vector<std::string>& names,
                                  const std::vector<std::vector<Fact>>& facts) {
  std::vector<std::string> lines;
  ExitCode code = ExitCode::kUsage;
  for (const Fact& fact : all_of(facts)) {
    const Fact first = fact_of(facts[0], fact.what);
    std::map<std::string, std::vector<std::string>> others;  // by what is said of them
    for (size_t rank = 1; rank < facts.size(); ++rank)
      if (const auto own = fact_of(facts[rank], fact.what); own.value != first.value)
        others[said(own)].push_back(names[rank]);
    if (!others.empty() && lines.empty()) code = fact.code;
    for (const auto& [value, who] : others)
      lines.push_back(fmt::format("{} {} {} {}, {} has {}", fmt::join(who, ", "),
                                  who.size() > 1 ? "have" : "has", fact.what, value, names[0], said(first)));
    if (!lines.empty() && fact.what == facts[0].front().what) break;
  }
  if (lines.empty()) return {};
  const size_t all = lines.size();
  if (all > kShown) lines.resize(kShown);
  return Error(code,
               fmt::format("the processes were not started alike: {}{}. Start all of them with the same "
                           "program, recipe, settings and data files.",
                           fmt::join(lines, "; "),
                           all > kShown ? fmt::format("; and {} more differences", all - kShown) : ""));
}

void require_agreement(Processes& processes, const std::vector<Fact>& facts) {
  if (processes.world() == 1) return;
  const auto hashes = processes.gather(hash_of(facts));
  if (std::ranges::adjacent_find(hashes, std::ranges::not_equal_to()) == hashes.end()) return;
  std::vector<std::vector<Fact>> all;
  for (const auto& one : processes.gather(to_text(facts))) all.push_back(to_facts(one));
  std::vector<std::string> names;
  for (int rank = 0; rank < processes.world(); ++rank) names.push_back(processes.name(rank));
  if (const auto error = disagreement(names, all)) throw processes.fail_together(*error);
}

}  // namespace tightloop
