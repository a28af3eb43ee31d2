#include "model/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "core/error.h"

namespace tightloop {

namespace {

std::deque<Family>& known_families() {
  static std::deque<Family> all;  // made by the first that is added, before main()
  return all;
}

}  // namespace

const std::deque<Family>& families() { return known_families(); }

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
  if (found != all.end() && found->name == family.name)
    throw std::logic_error("two families are called " + family.name);
  for (auto& preset : family.presets) preset.values.insert(preset.values.begin(), {"family", family.name});
  all.insert(found, std::move(family));
}

}  // namespace tightloop
