#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/choice.h"
#include "core/error.h"

namespace tightloop {

/// Values for several fields of a section, under one name.
struct Preset {
  std::string name;
  std::vector<std::pair<std::string, std::string>> values;  // field, value
};

/// An enum as a setting: what its table says, without its type.
struct ChoiceTarget {
  std::vector<Choice<size_t>> rows;  // by their numbers
  std::function<size_t()> get;
  std::function<void(size_t)> set;

  template <class Enum>
  static ChoiceTarget of(Enum& value) {
    ChoiceTarget target;
    for (const auto& row : kChoices<Enum>) target.rows.push_back({target.rows.size(), row.name, row.help});
    target.get = [&value] {
      const auto& rows = kChoices<Enum>;
      return static_cast<size_t>(std::ranges::find(rows, value, &Choice<Enum>::value) - rows.begin());
    };
    target.set = [&value](size_t row) { value = kChoices<Enum>[row].value; };
    return target;
  }
};

/// One setting: a place in a struct, with what a user must know about it.
///
/// A component keeps a struct beside it and describes it once:
///
///     struct ClipConfig {
///       double norm = 1.0;
///       void describe(Fields& fields) {
///         fields.add("norm", norm, "Largest gradient norm; 0 turns clipping off").range(0, 1e9);
///       }
///     };
///
/// Parsing, `tightloop config`, docs/configuration.md and the error with the nearest name all come from that.
class Field {
 public:
  using Target =
      std::variant<bool*, int64_t*, double*, std::string*, std::vector<std::string>*, ChoiceTarget>;

  Field(std::string name, Target target, std::string help);
  /// Numbers outside of [low, high] are refused.
  Field& range(double low, double high);
  /// Strings other than these are refused. For what is not a fixed list; a fixed one is an enum with its
  /// table (core/choice.h), and its choices come from there.
  Field& choices(std::vector<std::string> allowed);
  /// Another name, without a section: alias("use_cache") accepts --use_cache. The documentation shows it.
  Field& alias(std::string name);
  /// A text that can also be switched: true, yes, on and false, no, off stand for these two values.
  Field& on_off(std::string on, std::string off);
  /// A choice of names, each of which sets other fields of the section; single settings win over it.
  Field& presets(std::vector<Preset> presets);

  const std::string& name() const { return name_; }
  const std::string& help() const { return help_; }
  const std::string& default_text() const { return default_text_; }
  const std::vector<std::string>& aliases() const { return aliases_; }
  const std::vector<Preset>& presets() const { return presets_; }
  /// The only values that it takes; empty: others too.
  const std::vector<std::string>& choices() const { return choices_; }
  /// "integer, 1 to 100", "one of a, b", ...
  std::string kind() const;
  /// The value as YAML would write it.
  std::string text() const;
  bool is_list() const { return std::holds_alternative<std::vector<std::string>*>(target_); }
  /// Whether true and false are values of it.
  bool is_switch() const { return std::holds_alternative<bool*>(target_) || !on_.empty(); }
  /// Sets the value from text. The error says what was expected; `where` names the place the text came from.
  void set(const std::string& text, const std::string& where);
  void set_list(std::vector<std::string> items);
  /// Adds the items in the text to the list.
  void append(const std::string& text);

 private:
  Error refusal(const std::string& text, const std::string& where) const;
  std::string choice(const std::string& text, const std::string& where) const;

  std::string name_, help_, default_text_, on_, off_;
  Target target_;
  double low_ = -std::numeric_limits<double>::infinity(), high_ = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices_, aliases_;
  std::vector<Preset> presets_;
};

/// The fields of one section, in the order in which they are described.
class Fields {
 public:
  Field& add(std::string name, Field::Target target, std::string help) {
    return fields_.emplace_back(std::move(name), std::move(target), std::move(help));
  }
  template <class T>
  Field& add(std::string name, T& value, std::string help) {
    if constexpr (std::is_enum_v<T>)
      return add(std::move(name), Field::Target(ChoiceTarget::of(value)), std::move(help));
    else
      return add(std::move(name), Field::Target(&value), std::move(help));
  }
  std::deque<Field>& all() { return fields_; }
  const std::deque<Field>& all() const { return fields_; }

 private:
  std::deque<Field> fields_;
};

/// What other programs call settings. Names are compared without regard to case, - or _.
struct OtherNames {
  struct Same {
    std::string key;  // "section.key"
    std::vector<std::string> names;
  };
  struct Switch {
    std::string name, key, value;  // "bf16: true" sets the key to the value
  };
  struct Different {
    std::vector<std::string> names;
    std::string answer;  // goes on from "there is no setting 'name': "
  };
  /// Accepted, alone or with the setting's section, and shown nowhere.
  std::vector<Same> same;
  std::vector<Switch> switches;
  /// What is done in another way here: refused with a sentence.
  std::vector<Different> different;
  /// Sections, and those of ours that they mean.
  std::vector<std::pair<std::string, std::string>> sections;
  /// Sections whose settings may be named without the section.
  std::vector<std::string> bare;
};

/// All sections of a configuration, bound to the structs they fill. The structs must outlive it.
class Config {
 public:
  struct Section {
    std::string name, help;
    Fields fields;
  };

  template <class Component>
  void add_section(std::string name, Component& component, std::string help) {
    component.describe(sections_.emplace_back(Section{std::move(name), std::move(help), {}}).fields);
  }

  const std::deque<Section>& sections() const { return sections_; }
  void set_other_names(const OtherNames& names) { other_names_ = &names; }

  /// Reads a YAML file of `section: {key: value}`. Unknown keys are refused with the nearest known one.
  void load(const std::filesystem::path& file);
  /// The same from text; `origin` stands in messages for the file's name.
  void load_text(const std::string& yaml, const std::string& origin);
  /// Whether a word on the command line is meant as a setting: "section.key", right or misspelled, an alias
  /// or another program's name.
  bool is_setting(const std::string& word);
  /// The field that a word means, or none.
  const Field* field(const std::string& word);
  bool has_section(const std::string& name) const;
  /// Whether a word can stand alone and then means yes: --deterministic, --bf16.
  bool is_switch(const std::string& word);
  /// The setting that a wrong name may mean.
  std::optional<std::string> guess(const std::string& word) const;
  /// Sets "section.key" (or an alias) from the command line.
  void set(const std::string& key, const std::string& value);
  /// Applies --section.key value, --section.key=value and aliases: presets first, then single settings in
  /// order. A list that is named again gets longer.
  void apply(const std::vector<std::string>& arguments);

  /// Whether a file or the command line has set "section.key"; what a preset sets does not count.
  bool given(const std::string& key) const { return given_.contains(key); }
  /// Whether apply() or set() has: the command line.
  bool commanded(const std::string& key) const { return commanded_.contains(key); }

  /// All settings as YAML that load() reads back.
  std::string to_yaml() const;
  /// The page docs/configuration.md.
  std::string to_markdown() const;
  /// For the terminal; all sections, or one.
  std::string to_text(const std::optional<std::string>& section) const;

 private:
  struct FoundField {
    Section* section;
    Field* field;
    std::string when_on{};  // of a switch: what it sets the field to
  };
  std::optional<FoundField> look_up(const std::string& word);
  Field* own_field(const std::string& section, const std::string& name, Section** found = nullptr);
  FoundField find(const std::string& word, const std::string& where);
  /// A list that is in `begun` gets longer, another one is replaced.
  void set(const FoundField& found, const std::string& name, const std::string& text,
           const std::string& where, std::set<Field*>& begun);

  std::deque<Section> sections_;
  std::set<std::string> given_, commanded_;
  const OtherNames* other_names_ = nullptr;
};

/// The candidate that differs least from `word`, if any is close enough to be what was meant.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace tightloop
