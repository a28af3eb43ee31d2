#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "cli/command_tree.h"
#include "core/version.h"

namespace tightloop::cli {

namespace {

/// Text as troff takes it: nothing in it is a command.
std::string plain(const std::string& text) {
  std::string safe;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) safe += "\\&";
    if (c == '\\')
      safe += "\\e";
    else if (c == '-')
      safe += "\\-";
    else
      safe += c;
    begins = c == '\n';
  }
  return safe;
}

std::string option_text(const CommandTree::Option& option) {
  const std::string value =
      !option.values.empty() ? fmt::format("{}", fmt::join(option.values, "|")) : option.placeholder;
  std::string names = option.positional
                          ? "\\fI" + plain(option.names.front()) + "\\fR"
                          : "\\fB" + plain(fmt::format("{}", fmt::join(option.names, ", "))) + "\\fR";
  if (!option.positional && !value.empty()) names += " \\fI" + plain(value) + "\\fR";
  return ".TP\n" + names + "\n" + plain(option.about) + "\n";
}

std::string verb_text(const CommandTree::Verb& verb) {
  std::string text = ".SS tightloop " + plain(verb.path) + "\n" + plain(verb.about) + ".\n";
  for (const auto& option : verb.options) text += option_text(option);
  if (!verb.footer.empty()) text += ".PP\n.nf\n" + plain(verb.footer) + "\n.fi\n";
  return text;
}

constexpr const char* kEnd = R"(.SH ENVIRONMENT
.TP
\fBTIGHTLOOP_PLUGIN_DIR\fR
The folder of the plug\-ins, where they are neither beside the program nor in lib/tightloop.
.TP
\fBTIGHTLOOP_NO_CUDA\fR
1: the CPU alone.
.TP
\fBNO_COLOR\fR
Set: no colours.
.SH FILES
Recipes that are named as configs/NAME.yaml are looked for in the working folder, then in share/tightloop/configs of the
installation. Runs are in runs/NAME.
.SH EXIT STATUS
0 done; 1 anything else failed; 2 command line or configuration; 3 data; 4 checkpoint; 5 device or memory; 130 interrupted,
everything is saved; 141 nobody read the output.
)";

}  // namespace

std::string manual_page(const CommandTree& tree) {
  std::string text = fmt::format(
      ".TH TIGHTLOOP 1 \"\" \"tightloop {}\"\n.SH NAME\ntightloop \\- trains transformers from raw text to a "
      "finished model\n.SH SYNOPSIS\n.B tightloop\n\\fIVERB\\fR [\\fIOPTIONS\\fR] "
      "[\\fB\\-\\-section.key\\fR \\fIvalue\\fR ...]\n.SH DESCRIPTION\n{}\n",
      kVersion, plain(tree.about));
  std::string examples;
  for (const auto& verb : tree.verbs) {
    if (verb.path.empty()) examples = ".PP\n.nf\n" + plain(verb.footer) + "\n.fi\n.SH VERBS\n";
    text += verb.path.empty() ? examples : verb_text(verb);
  }
  text += ".SH SETTINGS\nOf recipes, and of the verbs that read one; with their defaults.\n";
  for (const auto& section : tree.sections) {
    text += ".SS " + plain(section.name + ": " + section.about) + "\n";
    for (const auto& setting : section.settings) text += option_text(setting);
  }
  return text + kEnd;
}

}  // namespace tightloop::cli
