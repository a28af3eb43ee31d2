#include "core/config.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/files.h"

namespace tightloop {

namespace {

// The shortest text that reads back to the same number.
std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15)
    return fmt::format("{}", static_cast<int64_t>(value));
  return fmt::format("{}", value);
}

// In a Markdown table a bar would end the cell.
std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

std::string quoted(const std::string& text) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << text;
  return out.c_str();
}

bool parse_bool(const std::string& text, bool& value) {
  static const std::vector<std::string> yes{"true", "yes", "on", "1"}, no{"false", "no", "off", "0"};
  const bool is_yes = std::ranges::count(yes, text), is_no = std::ranges::count(no, text);
  value = is_yes;
  return is_yes || is_no;
}

bool parse_double(const std::string& text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

// 1000, 1e6 and 1_000_000 are all integers to a person.
bool parse_integer(std::string text, int64_t& value) {
  std::erase(text, '_');
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return true;
  double number = 0;
  if (!parse_double(text, number) || number != std::floor(number) || std::abs(number) > 9e15) return false;
  value = static_cast<int64_t>(number);
  return true;
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> items;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

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

}  // namespace

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

Field::Field(std::string name, Target target, std::string help)
    : name_(std::move(name)), help_(std::move(help)), target_(target) {
  default_text_ = text();
}

Field& Field::range(double low, double high) {
  low_ = low, high_ = high;
  return *this;
}
Field& Field::choices(std::vector<std::string> allowed) {
  choices_ = std::move(allowed);
  return *this;
}
Field& Field::alias(std::string name) {
  aliases_.push_back(std::move(name));
  return *this;
}

std::string Field::kind() const {
  if (!choices_.empty()) return fmt::format("one of {}", fmt::join(choices_, ", "));
  static const char* const names[] = {"true or false", "integer", "number", "text", "list"};
  std::string kind = names[target_.index()];
  const bool has_low = std::isfinite(low_), has_high = std::isfinite(high_);
  if (has_low && has_high) return fmt::format("{}, {} to {}", kind, number_text(low_), number_text(high_));
  if (has_low) return fmt::format("{}, at least {}", kind, number_text(low_));
  return kind;
}

std::string Field::text() const {
  struct Writer {
    std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
    std::string operator()(const int64_t* value) const { return fmt::format("{}", *value); }
    std::string operator()(const double* value) const { return number_text(*value); }
    std::string operator()(const std::string* value) const { return quoted(*value); }
    std::string operator()(const std::vector<std::string>* items) const {
      std::vector<std::string> parts;
      for (const auto& item : *items) parts.push_back(quoted(item));
      return fmt::format("[{}]", fmt::join(parts, ", "));
    }
  };
  return std::visit(Writer{}, target_);
}

void Field::set(const std::string& text, const std::string& where) {
  const auto refuse = [&] {
    return usage_error("{}: '{}' is not a value for '{}' ({}).", where, text, name_, kind());
  };
  const auto check_range = [&](double value) {
    if (value < low_ || value > high_) throw refuse();
  };
  if (auto* target = std::get_if<bool*>(&target_)) {
    if (bool value; parse_bool(text, value)) return void(**target = value);
    throw refuse();
  }
  if (auto* target = std::get_if<int64_t*>(&target_)) {
    int64_t value;
    if (!parse_integer(text, value)) throw refuse();
    check_range(static_cast<double>(value));
    **target = value;
  } else if (auto* target = std::get_if<double*>(&target_)) {
    double value;
    if (!parse_double(text, value)) throw refuse();
    check_range(value);
    **target = value;
  } else if (auto* target = std::get_if<std::string*>(&target_)) {
    if (!choices_.empty() && !std::ranges::count(choices_, text)) throw refuse();
    **target = text;
  } else {
    set_list(split_list(text));
  }
}

void Field::set_list(std::vector<std::string> items) {
  *std::get<std::vector<std::string>*>(target_) = std::move(items);
}

Field& Field::presets(std::vector<Preset> presets) {
  presets_ = std::move(presets);
  choices_ = {""};
  for (const auto& preset : presets_) choices_.push_back(preset.name);
  return *this;
}

std::vector<std::string> Config::known_keys() const {
  std::vector<std::string> keys;
  for (const auto& section : sections_)
    for (const auto& field : section.fields.all()) {
      keys.push_back(section.name + "." + field.name());
      keys.insert(keys.end(), field.aliases().begin(), field.aliases().end());
    }
  return keys;
}

Config::Place Config::find(const std::string& key, const std::string& where) {
  const size_t dot = key.find('.');
  for (auto& section : sections_)
    for (auto& field : section.fields.all()) {
      if (dot != std::string::npos && section.name == key.substr(0, dot) &&
          field.name() == key.substr(dot + 1))
        return {&section, &field};
      if (std::ranges::count(field.aliases(), key)) return {&section, &field};
    }
  const auto guess = nearest(key, known_keys());
  throw usage_error("{}: unknown setting '{}'.{} 'tightloop config' lists all of them.", where, key,
                    guess ? fmt::format(" Did you mean '{}'?", *guess) : "");
}

void Config::load(const std::filesystem::path& file) {
  std::error_code failure;
  if (!std::filesystem::is_regular_file(file, failure)) {
    throw usage_error("there is no configuration file '{}'.", file.string());
  }
  load_text(read_file(file), file.string());
}

void Config::load_text(const std::string& yaml, const std::string& origin) {
  const auto where = [&](const YAML::Mark& mark) { return fmt::format("{}:{}", origin, mark.line + 1); };
  YAML::Node root;
  try {
    root = YAML::Load(yaml);
  } catch (const YAML::Exception& error) {
    throw usage_error("{}: this is not YAML: {}.", where(error.mark), error.msg);
  }
  if (root.IsNull()) return;
  if (!root.IsMap()) throw usage_error("{}: expected 'section:' lines at the top.", origin);
  for (const auto& entry : root) {
    const auto name = entry.first.as<std::string>();
    if (entry.second.IsNull()) continue;
    if (!entry.second.IsMap()) {
      throw usage_error("{}: '{}' must be a section with indented keys.", where(entry.first.Mark()), name);
    }
    const auto set_item = [&](const YAML::Node& item_key, const YAML::Node& value, bool presets) {
      const auto key = name + "." + item_key.as<std::string>();
      const auto line = where(item_key.Mark());
      const Place place = find(key, line);
      if (place.field->presets().empty() == presets) return;
      if (value.IsSequence() && place.field->is_list()) {
        place.field->set_list(value.as<std::vector<std::string>>());
        given_.insert(key);
      } else if (value.IsScalar() || value.IsNull()) {
        set(place, value.IsNull() ? "" : value.as<std::string>(), line);
      } else {
        throw usage_error("{}: '{}' takes {}.", line, key, place.field->kind());
      }
    };
    // Presets first: a file that names one and a value of its own means the value, in whatever order.
    for (const bool presets : {true, false})
      for (const auto& item : entry.second) set_item(item.first, item.second, presets);
  }
}

bool Config::is_setting(const std::string& word) const {
  return word.find('.') != std::string::npos || std::ranges::count(known_keys(), word) > 0;
}

void Config::set(const std::string& key, const std::string& value) {
  const Place place = find(key, "command line");
  set(place, value, "--" + key);
  commanded_.insert(place.section->name + "." + place.field->name());
}

void Config::set(const Place& place, const std::string& text, const std::string& where) {
  place.field->set(text, where);
  given_.insert(place.section->name + "." + place.field->name());
  for (const auto& preset : place.field->presets()) {
    if (preset.name != text) continue;
    for (const auto& [key, value] : preset.values)
      find(place.section->name + "." + key, where).field->set(value, where);
  }
}

void Config::apply(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with("--")) throw usage_error("'{}' was not expected here.", argument);
    const size_t equals = argument.find('=');
    const std::string key = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    if (equals != std::string::npos) {
      set(key, argument.substr(equals + 1));
      continue;
    }
    find(key, "command line");  // a wrong name is the more useful complaint
    if (i + 1 == arguments.size()) throw usage_error("--{} needs a value.", key);
    set(key, arguments[++i]);
  }
}

std::string Config::to_yaml() const {
  std::string out;
  for (const auto& section : sections_) {
    out += section.name + ":\n";
    for (const auto& field : section.fields.all())
      out += fmt::format("  {}: {}\n", field.name(), field.text());
  }
  return out;
}

std::string Config::to_markdown() const {
  std::string out =
      "# Configuration\n\n"
      "Every setting, made by `tightloop config --markdown`; do not edit by hand.\n"
      "In a file: `section:` with indented `key: value` lines. On the command line: `--section.key value`.\n";
  for (const auto& section : sections_) {
    out += fmt::format("\n## {}\n\n{}.\n\n| key | default | takes | what it does |\n|---|---|---|---|\n",
                       section.name, section.help);
    for (const auto& field : section.fields.all()) {
      std::string help = field.help();
      for (const auto& name : field.aliases()) help += fmt::format(" (alias `--{}`)", name);
      out += fmt::format("| `{}.{}` | `{}` | {} | {} |\n", section.name, field.name(),
                         cell(field.default_text()), field.kind(), cell(help));
    }
  }
  return out;
}

std::string Config::to_text(const std::optional<std::string>& only) const {
  std::string out;
  std::vector<std::string> names;
  for (const auto& section : sections_) {
    names.push_back(section.name);
    if (only && *only != section.name) continue;
    out += fmt::format("{}: {}\n", section.name, section.help);
    for (const auto& field : section.fields.all()) {
      out += fmt::format("  --{}.{} {}\n      {} ({})\n", section.name, field.name(), field.text(),
                         field.help(), field.kind());
    }
  }
  if (out.empty())
    throw usage_error("there is no section '{}'. Sections: {}.", *only, fmt::join(names, ", "));
  return out;
}

}  // namespace tightloop
