#pragma once

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Formatter.hpp>
#include <string>

namespace tightloop::cli {

/// Help in plain words: what an option takes, what it does, and its default.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(16); }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_items_expected_max() == 0) return "";
    const std::string type = option->get_type_name();
    const size_t colon = type.find(':');
    if (colon != std::string::npos && type[colon + 1] == '{') return " " + type.substr(colon + 1);
    const std::string plain = type.substr(0, colon);
    return plain == "TEXT" ? " TEXT" : plain == "FLOAT" ? " NUMBER" : " N";
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string about = option->get_description(), value = option->get_default_str();
    if (option->get_required()) return about + " (required)";
    const bool shown = !value.empty() && value != "[]" && option->get_items_expected_max() > 0;
    if (!shown || about.find("default:") != std::string::npos) return about;
    return fmt::format("{} (default: {})", about, value);
  }
};

}  // namespace tightloop::cli
