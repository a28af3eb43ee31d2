#include "core/config.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>

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

std::string quoted(const std::string& text) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << text;
  return out.c_str();
}

std::string lower_case(std::string text) {
  for (char& letter : text)
    if (letter >= 'A' && letter <= 'Z') letter += 'a' - 'A';
  return text;
}

bool parse_bool(const std::string& text, bool& value) {
  static const std::vector<std::string> yes{"true", "yes", "on", "1"}, no{"false", "no", "off", "0"};
  const bool is_yes = std::ranges::count(yes, lower_case(text)),
             is_no = std::ranges::count(no, lower_case(text));
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

bool exists(const std::string& path) {
  std::error_code failure;
  return !path.empty() && std::filesystem::exists(path, failure);
}

// "[a, 'b c']" as a file would write it.
std::optional<std::vector<std::string>> bracketed(const std::string& text) {
  if (!text.starts_with('[') || !text.ends_with(']')) return {};
  try {
    return YAML::Load(text).as<std::vector<std::string>>();
  } catch (const YAML::Exception&) {
    return {};  // a pattern such as [ab].txt
  }
}

// "key=value ..." with spaces before it: an entry of a list of such, as data.mixture is.
bool begins_entry(const std::string& text, size_t at) {
  const size_t begin = std::min(text.find_first_not_of(' ', at), text.size());
  const size_t end = text.find_first_of(" =,", begin);
  return end != std::string::npos && end > begin && text[end] == '=';
}

// The next comma that parts items; one before a space belongs to a sentence, unless an entry follows.
size_t comma_after(const std::string& text, size_t begin) {
  size_t found = text.find(',', begin);
  while (found != std::string::npos && found + 1 < text.size() && text[found + 1] == ' ' &&
         !begins_entry(text, found + 1))
    found = text.find(',', found + 1);
  return std::min(found, text.size());
}

// Commas part items, except those in sentences and in the names of files that exist.
std::vector<std::string> split_list(const std::string& text) {
  if (exists(text)) return {text};
  if (const auto items = bracketed(text); items && (items->size() != 1 || exists(items->front())))
    return *items;
  std::vector<std::string> items;
  for (size_t begin = 0; begin < text.size();) {
    if (begins_entry(text, begin)) begin = text.find_first_not_of(' ', begin);
    size_t end = comma_after(text, begin);
    for (size_t later = text.size(); later != std::string::npos && later > end;
         later = text.rfind(',', later - 1))
      if (exists(text.substr(begin, later - begin))) end = later;
    items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

}  // namespace

Field::Field(std::string name, Target target, std::string help)
    : name_(std::move(name)), help_(std::move(help)), target_(std::move(target)) {
  default_text_ = text();
  const auto* choice = std::get_if<ChoiceTarget>(&target_);
  if (!choice) return;
  for (const auto& row : choice->rows) {
    choices_.emplace_back(row.name);
    if (!row.help.empty()) help_ += fmt::format("; {}: {}", row.name, row.help);
  }
}

Field& Field::range(double low, double high) {
  low_ = low, high_ = high;
  return *this;
}
Field& Field::choices(std::vector<std::string> allowed) {
  choices_ = std::move(allowed);
  return *this;
}
Field& Field::on_off(std::string on, std::string off) {
  on_ = std::move(on), off_ = std::move(off);
  return *this;
}
Field& Field::alias(std::string name) {
  aliases_.push_back(std::move(name));
  return *this;
}

std::string Field::kind() const {
  if (!choices_.empty()) {
    std::vector<std::string> names = choices_;
    std::erase(names, "");  // the default of some
    return fmt::format("one of {}", fmt::join(names, ", "));
  }
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
    std::string operator()(const ChoiceTarget& choice) const {
      return quoted(std::string(choice.rows.at(choice.get()).name));
    }
  };
  return std::visit(Writer{}, target_);
}

Error Field::refusal(const std::string& text, const std::string& where) const {
  const auto guess = nearest(text, choices_);
  return usage_error("{}: '{}' is not a value for '{}' ({}).{}", where, text, name_, kind(),
                     guess && !guess->empty() ? fmt::format(" Did you mean '{}'?", *guess) : "");
}

std::string Field::choice(const std::string& text, const std::string& where) const {
  if (std::ranges::count(choices_, text)) return text;
  const std::string lower = lower_case(text);
  const bool number = text == "0" || text == "1";  // a free text may mean a number by it
  if (bool on; !on_.empty() && parse_bool(text, on) && !(number && choices_.empty())) return on ? on_ : off_;
  if (choices_.empty()) return text;
  if (std::ranges::count(choices_, lower)) return lower;
  static const std::map<std::string, std::string> dtypes{
      {"bfloat16", "bf16"}, {"float16", "fp16"}, {"half", "fp16"}, {"float32", "fp32"}, {"float", "fp32"}};
  if (const auto same = dtypes.find(lower);
      same != dtypes.end() && std::ranges::count(choices_, same->second))
    return same->second;
  throw refusal(text, where);
}

void Field::set(const std::string& text, const std::string& where) {
  const auto refuse = [&] { return refusal(text, where); };
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
    **target = choice(text, where);
  } else if (auto* target = std::get_if<ChoiceTarget>(&target_)) {
    target->set(std::ranges::find(choices_, choice(text, where)) - choices_.begin());
  } else {
    set_list(split_list(text));
  }
}

void Field::set_list(std::vector<std::string> items) {
  *std::get<std::vector<std::string>*>(target_) = std::move(items);
}

void Field::append(const std::string& text) {
  auto& list = *std::get<std::vector<std::string>*>(target_);
  std::ranges::move(split_list(text), std::back_inserter(list));
}

Field& Field::presets(std::vector<Preset> presets) {
  presets_ = std::move(presets);
  choices_ = {""};
  for (const auto& preset : presets_) choices_.push_back(preset.name);
  return *this;
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
    // A tab breaks what it indents, and is complained about as something else, lines later.
    size_t line = 1;
    for (size_t at = 0; at < yaml.size(); at = yaml.find('\n', at) + 1, ++line) {
      const size_t text = yaml.find_first_not_of(" \t", at);
      if (yaml.find('\t', at) < text)
        throw usage_error("{}:{}: a tab stands before the setting. YAML indents with spaces.", origin, line);
      if (yaml.find('\n', at) == yaml.npos) break;
    }
    throw usage_error("{}: this is not YAML: {}.", where(error.mark), error.msg);
  }
  if (root.IsNull()) return;
  if (!root.IsMap()) throw usage_error("{}: expected 'section:' lines at the top.", origin);
  const auto is_section = [&](const std::string& name) {
    const auto is_name = [&](const auto& other_and_ours) { return other_and_ours.first == name; };
    return has_section(name) || (other_names_ && std::ranges::any_of(other_names_->sections, is_name));
  };
  const auto text_of = [&](const YAML::Node& node) {
    if (!node.IsScalar()) throw usage_error("{}: a text must stand here.", where(node.Mark()));
    return node.Scalar();
  };
  std::set<Field*> begun;
  const auto set_item = [&](const std::string& key, const YAML::Node& named, const YAML::Node& value,
                            bool presets) {
    const auto line = where(named.Mark());
    const FoundField found = find(key, line);
    if (found.field->presets().empty() == presets) return;
    if (!begun.insert(found.field).second) throw usage_error("{}: '{}' is set a second time.", line, key);
    if (value.IsSequence() && found.field->is_list()) {
      std::vector<std::string> texts;
      for (const auto& one : value) texts.push_back(text_of(one));
      found.field->set_list(texts);
      given_.insert(found.section->name + "." + found.field->name());
    } else if (value.IsScalar() || value.IsNull()) {
      std::set<Field*> none;
      set(found, key, value.IsNull() ? "" : value.as<std::string>(), line, none);
    } else {
      throw usage_error("{}: '{}' takes {}.", line, key, found.field->kind());
    }
  };
  // Presets first: a file that names one and a value of its own means the value, in whatever order.
  for (const bool presets : {true, false})
    for (const auto& entry : root) {
      const auto name = text_of(entry.first);
      if (entry.second.IsNull() && is_section(name)) continue;  // without keys
      if (!entry.second.IsMap()) {
        if (!look_up(name) && !is_setting(name))
          throw usage_error("{}: '{}' must be a section with indented keys.", where(entry.first.Mark()),
                            name);
        set_item(name, entry.first, entry.second, presets);
        continue;
      }
      for (const auto& item : entry.second)
        set_item(name + "." + text_of(item.first), item.first, item.second, presets);
    }
}

void Config::set(const std::string& key, const std::string& value) {
  std::set<Field*> none;
  const FoundField found = find(key, "command line");
  set(found, key, value, "--" + key, none);
  commanded_.insert(found.section->name + "." + found.field->name());
}

void Config::set(const FoundField& found, const std::string& name, const std::string& text,
                 const std::string& where, std::set<Field*>& begun) {
  Field& field = *found.field;
  std::string value = text;
  // A name that asks whether, not how many: use_gradient_checkpointing=1.
  const std::string bare = name.substr(name.rfind('.') + 1);
  if (bool on; (bare.starts_with("use_") || bare.starts_with("use-")) && parse_bool(text, on))
    value = on ? "true" : "false";
  if (!found.when_on.empty()) {
    bool on = false;
    if (!parse_bool(text, on) || !on)
      throw usage_error("{}: '{}' says what {}.{} is not; say what it is ({}).", where, text,
                        found.section->name, field.name(), field.kind());
    value = found.when_on;
  }
  if (field.is_list() && !begun.insert(&field).second) return field.append(value);
  field.set(value, where);
  given_.insert(found.section->name + "." + field.name());
  for (const auto& preset : field.presets()) {
    if (preset.name != value) continue;
    for (const auto& [key, preset_value] : preset.values)
      find(found.section->name + "." + key, where).field->set(preset_value, where);
  }
}

void Config::apply(const std::vector<std::string>& arguments) {
  struct Given {
    FoundField found;
    std::string key, value;
  };
  std::vector<Given> all;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with("--")) throw usage_error("'{}' was not expected here.", argument);
    const size_t equals = argument.find('=');
    const std::string key = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    const FoundField found = find(key, "command line");  // a wrong name is the more useful complaint
    if (equals != std::string::npos) {
      all.push_back({found, key, argument.substr(equals + 1)});
      continue;
    }
    if (i + 1 == arguments.size()) throw usage_error("--{} needs a value ({}).", key, found.field->kind());
    all.push_back({found, key, arguments[++i]});
  }
  std::set<Field*> begun;
  for (const bool presets : {true, false})
    for (const Given& given : all)
      if (given.found.field->presets().empty() != presets) {
        set(given.found, given.key, given.value, "--" + given.key, begun);
        commanded_.insert(given.found.section->name + "." + given.found.field->name());
      }
}

}  // namespace tightloop
