#include "train/run/run_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/io/json_depth.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "data/store/fingerprint.h"
#include "train/run/checkpoint.h"
#include "train/run/resume_settings.h"

namespace tightloop {

namespace {

constexpr const char* kSettings = "settings";
constexpr const char* kTokenizer = "tokenizer";
constexpr const char* kData = "data";
constexpr std::string_view kChecksum = "# xxh3 ";

std::string checksum_line(std::string_view yaml) {
  return fmt::format("{}{} of the lines above. To change a setting, give it to 'train --resume'.\n",
                     kChecksum, hex64(hash64(yaml)));
}

bool has_right_checksum(const std::string& text) {
  const size_t at = text.rfind(kChecksum);
  return at != std::string::npos && text.substr(at) == checksum_line(std::string_view(text).substr(0, at));
}

/// What loading a tokenizer may read; a .DS_Store, say, decides no ids.
bool is_tokenizer_file(const fs::path& file) {
  static const std::set<std::string> endings{".json", ".txt", ".model", ".tiktoken", ".vocab"};
  return is_file(file) && !file.filename().string().starts_with('.') && endings.contains(file.extension());
}

void compare_tokenizer(const RunFolder& run, const nlohmann::json& metadata) {
  if (!metadata.contains(kTokenizer)) return;
  const auto was = metadata.at(kTokenizer).get<std::string>(), is = tokenizer_hash(run);
  if (was == is) return;
  if (folder_entries(run.tokenizer()).empty())
    throw checkpoint_error("'{}' is missing or empty: without its tokenizer the run cannot be used.",
                           run.tokenizer().string());
  throw checkpoint_error(
      "the tokenizer in '{}' is not the one that the checkpoint was trained with (hash: was {}, is {}): "
      "text would become other ids. Put its files back as they were.",
      run.root().string(), was, is);
}

using Values = std::map<std::string, std::string>;

}  // namespace

std::string tokenizer_hash(const RunFolder& run) {
  Hasher hasher;
  const auto add = [&](const std::string& text) {
    const uint64_t size = text.size();
    hasher.update(&size, sizeof size);
    hasher.update(text.data(), size);
  };
  for (const fs::path& folder : {run.tokenizer(), run.target_tokenizer()}) {
    for (const fs::path& file : folder_entries(folder)) {
      if (!is_tokenizer_file(file)) continue;
      add((folder.filename() / file.filename()).string());
      add(read_file(file));
    }
  }
  return hex64(hasher.digest());
}

nlohmann::json setting_json(const std::string& text) {
  const auto value = nlohmann::json::parse(shallow_json(text), nullptr, /*allow_exceptions=*/false);
  return value.is_discarded() ? nlohmann::json(text) : value;
}

Values values_in(const std::string& yaml) {
  Values values;
  std::istringstream lines(yaml);
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    const size_t from = line.find_first_not_of(' '), colon = line.find(':');
    if (from == std::string::npos || line[from] == '#' || colon == std::string::npos) continue;
    if (from == 0)
      section = line.substr(0, colon);
    else
      values[section + "." + line.substr(from, colon - from)] = line.substr(std::min(colon + 2, line.size()));
  }
  return values;
}

std::string listed(std::vector<std::string> lines) {
  constexpr size_t kShown = 12;
  const size_t all = lines.size();
  if (all > kShown) lines.resize(kShown);
  return fmt::format("  {}{}", fmt::join(lines, "\n  "),
                     all > kShown ? fmt::format("\n  and {} more", all - kShown) : "");
}

std::string ChangedSetting::line() const { return fmt::format("{}: was {}, is {}", key, was, is); }

std::vector<ChangedSetting> changed_settings(Recipe was, Recipe is) {
  const Values before = values_in(json_text(was.bind().to_yaml()));
  std::vector<ChangedSetting> changed;
  for (const auto& [key, value] : values_in(json_text(is.bind().to_yaml())))
    if (before.at(key) != value) changed.push_back({key, before.at(key), value});
  return changed;
}

void write_settings(const RunFolder& run, Recipe& recipe) {
  const std::string yaml = recipe.bind().to_yaml();
  write_file_whole(run.config(), yaml + checksum_line(yaml));
}

bool has_settings_of_a_run(const RunFolder& run) {
  if (!is_file(run.config())) return false;
  const std::string text = read_file(run.config());
  const size_t last_line = text.rfind('\n', text.size() - std::min<size_t>(text.size(), 2)) + 1;
  return std::string_view(text).substr(last_line).starts_with(kChecksum);
}

void restore_settings(const RunFolder& run) {
  const Checkpoint newest = load_checkpoint(run.checkpoints(), {}, /*weights_only=*/true);
  if (!newest.metadata.contains(kSettings))
    throw usage_error(
        "the run '{}' has checkpoints, but its config.yaml is missing, and the checkpoint of step {} is of "
        "an "
        "older version that does not keep the settings. Put config.yaml back.",
        run.root().string(), newest.step);
  const auto yaml = newest.metadata.at(kSettings).get<std::string>();
  write_file_whole(run.config(), yaml + checksum_line(yaml));
  log::warn("'{}' was missing. It is written again with the settings of the checkpoint of step {}.",
            run.config().string(), newest.step);
}

nlohmann::json origin_of(Recipe& recipe, const RunFolder& run) {
  return {{kSettings, json_text(recipe.bind().to_yaml())},
          {kTokenizer, tokenizer_hash(run)},
          {kData, fingerprint_files(recipe.data)}};
}

Recipe settings_of(const nlohmann::json& metadata, const Recipe& otherwise) {
  if (!metadata.contains(kSettings)) return otherwise;
  Recipe recipe;
  recipe.bind().load_text(metadata.at(kSettings).get<std::string>(), "the settings in state.json");
  return recipe;
}

Recipe read_settings(const RunFolder& run, const nlohmann::json& metadata, bool all) {
  const std::string text = read_file(run.config());
  Recipe recipe;
  recipe.bind().load_text(text, run.config().string());
  compare_tokenizer(run, metadata);
  if (!metadata.contains(kSettings)) {
    static std::once_flag said;
    std::call_once(said, [] {
      log::warn(
          "The checkpoint is of an older version: its settings, tokenizer and data cannot be compared.");
    });
    return recipe;
  }
  const bool untouched = has_right_checksum(text);
  const auto matters = [&](const std::string& key) {
    return (all && !untouched) || !(may_change(key) || names_files(key));
  };
  std::vector<std::string> lines;
  const Values there = values_in(text);
  for (const auto& [key, value] : values_in(metadata.at(kSettings).get<std::string>()))
    if (!there.contains(key) && matters(key)) lines.push_back(key + ": is missing");
  for (const auto& change : changed_settings(settings_of(metadata, recipe), recipe))
    if (there.contains(change.key) && matters(change.key)) lines.push_back(change.line());
  if (lines.empty()) return recipe;
  throw usage_error(
      "'{}' does not have the settings that the checkpoint was saved with:\n{}\nPut it back as it was. "
      "What may change is given on the command line: tightloop train --resume {} --section.key VALUE.",
      run.config().string(), listed(std::move(lines)), shell_word(run.root().string()));
}

}  // namespace tightloop
