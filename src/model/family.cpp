#include "model/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/error.h"

namespace tightloop {

namespace {

std::deque<Family>& known_families() {
  static std::deque<Family> all;  // made by the first that is added, before main()
  return all;
}

/// What was wrong with a family, said to the first who asks for one: before main() nobody could catch it.
std::string& complaint() {
  static std::string text;
  return text;
}

}  // namespace

const std::deque<Family>& families() {
  if (!complaint().empty()) throw usage_error("{}", complaint());
  return known_families();
}

const Family& family_of(const ModelConfig& config) {
  std::vector<std::string> names;
  for (const auto& family : families()) {
    if (family.name == config.family) return family;
    names.push_back(family.name);
  }
  throw usage_error("model.family is '{}'; there are {}.", config.family, fmt::join(names, ", "));
}

std::string families_with(bool (*has)(const Family& family)) {
  std::vector<std::string> names;
  for (const auto& family : families())
    if (has(family)) names.push_back(family.name);
  return fmt::format("{}", fmt::join(names, " and "));
}

AddFamily::AddFamily(Family family) {
  auto& all = known_families();
  const auto found = std::ranges::lower_bound(all, family.name, {}, &Family::name);
  const bool named = !family.name.empty() && std::ranges::all_of(family.name, [](unsigned char c) {
    return std::islower(c) || std::isdigit(c) || c == '_';
  });
  if (!named)
    complaint() =
        fmt::format("a family is called '{}': a name has small letters, digits and _.", family.name);
  else if (found != all.end() && found->name == family.name)
    complaint() = fmt::format("two families are called '{}': choose another name for yours.", family.name);
  else if (!family.make)
    complaint() = fmt::format("the family '{}' has no .make (make_family<YourModel>).", family.name);
  if (!complaint().empty()) return;
  for (auto& preset : family.presets) preset.values.insert(preset.values.begin(), {"family", family.name});
  all.insert(found, std::move(family));
}

}  // namespace tightloop
