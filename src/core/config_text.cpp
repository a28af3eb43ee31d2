#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/config.h"
#include "core/error.h"

namespace tightloop {

namespace {

// In a Markdown table a bar would end the cell.
std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

}  // namespace

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
      "In a file: `section:` with indented `key: value` lines. On the command line: `--section.key value`.\n"
      "There a list takes several values (`--data.train a.txt b.txt`) and gets longer where it is named "
      "again; "
      "yes and no are true, false, on, off, 1 or 0.\n"
      "Names that other trainers have for the same setting, such as `learning_rate` or `batch_size`, are "
      "understood.\n";
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
