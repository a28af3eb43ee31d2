// How a word becomes a setting: its own name, an alias, another program's name, or the nearest.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "core/config.h"
#include "core/error.h"

namespace tightloop {

namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

// Names are compared without regard to case, - or _.
std::string plain_name(std::string name) {
  for (char& letter : name) {
    if (letter >= 'A' && letter <= 'Z') letter += 'a' - 'A';
    if (letter == '-') letter = '_';
  }
  return name;
}

bool contains_name(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::any_of(names, [&](const auto& other) { return plain_name(other) == name; });
}

std::string section_part(const std::string& key) {
  const size_t dot = key.find('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

std::string name_part(const std::string& key) { return key.substr(key.find('.') + 1); }

const std::string* different_answer(const OtherNames& names, const std::string& word) {
  for (const auto& entry : names.different)
    if (contains_name(entry.names, word) || contains_name(entry.names, name_part(word))) return &entry.answer;
  return nullptr;
}

}  // namespace

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  size_t best_distance = (word.size() < 4 ? 1 : std::max<size_t>(2, word.size() / 3)) + 1;
  for (const auto& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

Field* Config::own_field(const std::string& section, const std::string& name, Section** found) {
  for (auto& one : sections_) {
    if (one.name != section) continue;
    for (auto& field : one.fields.all())
      if (field.name() == name) return (found ? *found = &one : nullptr), &field;
  }
  return nullptr;
}

std::optional<Config::FoundField> Config::look_up(const std::string& word) {
  const std::string key = plain_name(word), name = name_part(key);
  std::string section = section_part(key);
  static const OtherNames none;
  const OtherNames& others = other_names_ ? *other_names_ : none;
  for (const auto& [other, ours] : others.sections)
    if (section == other) section = ours;
  const auto find_own = [&](const std::string& of, const std::string& what) -> std::optional<FoundField> {
    Section* found = nullptr;
    if (Field* field = own_field(of, what, &found)) return FoundField{found, field};
    return {};
  };
  if (auto own = find_own(section, name)) return own;
  for (auto& one : sections_)
    for (auto& field : one.fields.all())
      if (contains_name(field.aliases(), name) && (section.empty() || section == one.name))
        return FoundField{&one, &field};
  const auto is_meant = [&](const std::string& ours) {
    return section.empty() || section == section_part(ours);
  };
  for (const auto& same : others.same)
    if (contains_name(same.names, key) || (contains_name(same.names, name) && is_meant(same.key)))
      return find_own(section_part(same.key), name_part(same.key));
  for (const auto& one : others.switches)
    if (one.name == name && is_meant(one.key)) {
      auto found = find_own(section_part(one.key), name_part(one.key));
      if (found) found->when_on = one.value;
      return found;
    }
  if (!section.empty() || different_answer(others, name)) return {};
  for (const auto& bare : others.bare)
    if (auto found = find_own(bare, name)) return found;
  return {};
}

Config::FoundField Config::find(const std::string& word, const std::string& where) {
  if (auto found = look_up(word)) return *found;
  if (const auto* answer = other_names_ ? different_answer(*other_names_, plain_name(word)) : nullptr)
    throw usage_error("{}: there is no setting '{}': {}", where, word, *answer);
  const auto meant = guess(word);
  throw usage_error("{}: unknown setting '{}'.{} 'tightloop config' lists all of them.", where, word,
                    meant ? fmt::format(" Did you mean '{}'?", *meant) : "");
}

std::optional<std::string> Config::guess(const std::string& word) const {
  const std::string key = plain_name(word), section = section_part(key), name = name_part(key);
  // The same name in another section is what was meant.
  std::vector<std::string> written, meant;
  const auto add = [&](const std::string& as, const std::string& ours) {
    written.push_back(as), meant.push_back(ours);
  };
  for (const auto& one : sections_)
    for (const auto& field : one.fields.all()) {
      const std::string ours = one.name + "." + field.name();
      if (!section.empty() && field.name() == name) return ours;
      add(section.empty() ? field.name() : ours, ours);
      for (const auto& alias : field.aliases()) add(plain_name(alias), ours);
    }
  if (other_names_)
    for (const auto& same : other_names_->same)
      for (const auto& other : same.names) {
        if (plain_name(other) == name) return same.key;
        add(section.empty() ? other : section_part(same.key) + "." + other, same.key);
      }
  // "train.step" is "train.steps".
  if (const auto plural = std::ranges::find(written, key + "s"); plural != written.end())
    return meant[plural - written.begin()];
  // "train.keep" is rather "train.keep_best" than another word of four letters.
  std::optional<std::string> begun;
  const bool known = std::ranges::count(written, key) > 0;
  for (size_t i = 0; i < written.size() && !known; ++i)
    if (written[i].starts_with(key + "_") && (!begun || meant[i].size() < begun->size())) begun = meant[i];
  if (begun) return begun;
  const auto best = nearest(key, written);
  if (!best) return {};
  return meant[std::ranges::find(written, *best) - written.begin()];
}

bool Config::is_setting(const std::string& word) {
  if (word.find('.') != std::string::npos || look_up(word)) return true;
  return other_names_ && different_answer(*other_names_, plain_name(word));
}

bool Config::has_section(const std::string& name) const {
  return std::ranges::count(sections_, name, &Section::name) > 0;
}

bool Config::is_switch(const std::string& word) {
  const auto found = look_up(word);
  return found && (!found->when_on.empty() || found->field->is_switch());
}

const Field* Config::field(const std::string& word) {
  const auto found = look_up(word);
  return found ? found->field : nullptr;
}

}  // namespace tightloop
