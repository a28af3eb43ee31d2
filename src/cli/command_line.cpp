#include "cli/command_line.h"

#include <CLI/App.hpp>
#include <algorithm>
#include <charconv>
#include <set>

#include "cli/wrong_use.h"
#include "core/error.h"
#include "core/io/gguf.h"
#include "train/settings/recipe.h"

namespace tightloop::cli {

bool takes_settings(const std::string& verb) {
  static const std::set<std::string> verbs{"train", "config", "bench", "data",    "prepare",
                                           "model", "eval",   "chat",  "inspect", "fit"};
  return verbs.contains(verb);
}

namespace {

bool is_number(const std::string& word) {
  double value;
  const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), value);
  return failed == std::errc() && end == word.data() + word.size();
}

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-' && !is_number(word); }

class ArgumentReader {
 public:
  ArgumentReader(CLI::App& app, const std::vector<std::string>& arguments)
      : arguments_(arguments), verb_(&app), config_(recipe_.bind()) {}

  CommandLine read() {
    while (at_ < arguments_.size()) {
      const std::string& word = arguments_[at_];
      if (is_option(word))
        read_option(word);
      else if (has_verbs())
        read_verb(word);
      else
        read_positional(word);
    }
    if (has_verbs() && !asks_for_help_) throw missing_verb(*verb_);
    return std::move(line_);
  }

 private:
  bool has_verbs() const {
    return !verb_->get_subcommands([](CLI::App*) { return true; }).empty();
  }

  CLI::Option* option(const std::string& name) const { return verb_->get_option_no_throw(name); }

  /// How many words without an option it takes.
  size_t positional_words() const {
    size_t count = 0;
    for (const auto* one : verb_->get_options())
      if (one->get_positional()) count += static_cast<size_t>(one->get_items_expected_max());
    return count;
  }

  // A verb that reads a recipe takes settings without their section too.
  bool reads_recipe() const { return settings_ && !has_verbs() && positional_words() > 0; }

  void read_verb(const std::string& word) {
    for (auto* one : verb_->get_subcommands([](CLI::App*) { return true; }))
      if (one->get_name() == word) {
        if (!verb_->get_parent()) settings_ = takes_settings(word);
        verb_ = one;
        line_.words.push_back(word);
        at_ += arguments_[at_] == word;
        return;
      }
    if (verb_->get_name() == "inspect" && is_gguf_name(word)) return read_verb("gguf");  // what else
    throw unknown_verb(*verb_, word);
  }

  void read_positional(const std::string& word) {
    if (positionals_ == positional_words()) {
      std::vector<std::string> words;
      while (at_ < arguments_.size() && !is_option(arguments_[at_])) words.push_back(arguments_[at_++]);
      throw unexpected_words(*verb_, words, last_option_, last_value_);
    }
    ++positionals_, ++at_;
    last_option_.clear();
    line_.words.push_back(word);
  }

  /// The verb's own name for an option that may be written with _.
  std::string own_name(std::string name) const {
    if (option(name)) return name;
    std::ranges::replace(name, '_', '-');
    return option(name) ? name : "";
  }

  bool is_setting(const std::string& name) {
    return name.starts_with("--") && name.size() > 2 &&
           (name.find('.') != std::string::npos || (reads_recipe() && config_.is_setting(name.substr(2))));
  }

  /// Whether a word after an option is one of its own, not its value.
  bool begins_another(const std::string& word) {
    if (!is_option(word)) return false;
    const std::string name = word.substr(0, word.find('='));
    return !own_name(name).empty() || is_setting(name);
  }

  void read_option(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (name == "--help" || name == "-h" || name == "--version") asks_for_help_ = true;
    const std::string own = own_name(name);
    if (own.empty() && is_setting(name)) return read_setting(name.substr(2), equals);
    if (own.empty()) throw unknown_option(*verb_, name, reads_recipe() ? &config_ : nullptr);
    ++at_;
    last_option_ = own;
    const CLI::Option& meant = *option(own);
    if (equals != std::string::npos || meant.get_items_expected_max() == 0) {
      line_.words.push_back(own + (equals == std::string::npos ? "" : word.substr(equals)));
      last_value_ = equals == std::string::npos ? "" : word.substr(equals + 1);
      return;
    }
    if (at_ == arguments_.size() || begins_another(arguments_[at_]))
      throw usage_error("{} needs a value. '{} --help' says which.", own, name_of(*verb_));
    const bool several = meant.get_items_expected_max() > 1 && meant.get_allow_extra_args();
    do {
      last_value_ = arguments_[at_++];
      const bool alone = last_value_.starts_with('-');  // CLI11 would take it for an option
      line_.words.push_back(alone ? own + "=" + last_value_ : own);
      if (!alone) line_.words.push_back(last_value_);
    } while (several && at_ < arguments_.size() && !is_option(arguments_[at_]));
  }

  void read_setting(const std::string& key, size_t equals) {
    if (has_verbs() && verb_->get_parent() == nullptr)
      throw usage_error("say what to do before --{}, as in: tightloop train RECIPE --{} VALUE", key, key);
    if (!settings_)
      throw usage_error("'{}' takes no settings of a recipe, such as --{}.", name_of(*verb_), key);
    const auto add = [&](const std::string& value) {
      line_.settings.push_back("--" + key);
      line_.settings.push_back(value);
      last_option_ = "--" + key, last_value_ = value;
    };
    const std::string& word = arguments_[at_++];
    if (equals != std::string::npos) return add(word.substr(equals + 1));
    const Field* field = config_.field(key);
    if (!field) config_.set(key, "");  // which says what is wrong with the name
    const bool ends = at_ == arguments_.size() || begins_another(arguments_[at_]);
    if ((ends || is_the_recipe(arguments_[at_])) && config_.is_switch(key)) return add("true");
    if (ends) throw usage_error("--{} needs a value ({}).", key, field->kind());
    add(arguments_[at_++]);
    if (!field->is_list()) return;
    while (at_ < arguments_.size() && !is_option(arguments_[at_]) && !is_the_recipe(arguments_[at_]))
      add(arguments_[at_++]);
  }

  bool is_the_recipe(const std::string& word) const {
    return is_recipe_name(word) && reads_recipe() && positionals_ == 0;
  }

  const std::vector<std::string>& arguments_;
  CLI::App* verb_;
  Recipe recipe_;
  Config config_;
  CommandLine line_;
  size_t at_ = 0, positionals_ = 0;
  bool settings_ = false, asks_for_help_ = false;
  std::string last_option_, last_value_;
};

}  // namespace

CommandLine take_apart(CLI::App& app, const std::vector<std::string>& arguments) {
  return ArgumentReader(app, arguments).read();
}

}  // namespace tightloop::cli
