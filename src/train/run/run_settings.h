#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "train/run/run_folder.h"
#include "train/settings/recipe.h"

namespace tightloop {

/// Writes config.yaml: every setting, and a checksum of them in its last line.
void write_settings(const RunFolder& run, Recipe& recipe);

/// "section.key" and value of every setting that a config.yaml has a line for.
std::map<std::string, std::string> values_in(const std::string& yaml);
/// Such a value for programs: a number as a number, a list as a list, a word as a string.
nlohmann::json setting_json(const std::string& text);

/// Of the files of the run's tokenizers that decide ids.
std::string tokenizer_hash(const RunFolder& run);

/// Whether its config.yaml is one that write_settings wrote, changed since or not; a recipe is none.
bool has_settings_of_a_run(const RunFolder& run);

/// Writes a config.yaml that is missing again, from what the newest checkpoint says of itself; a usage error
/// where that does not say.
void restore_settings(const RunFolder& run);

/// What a checkpoint keeps of where it comes from, to be compared when it is used again: `settings`
/// (config.yaml without its checksum), `tokenizer` (a hash of the run's tokenizer files) and `data` (see
/// data/store/fingerprint.h).
nlohmann::json origin_of(Recipe& recipe, const RunFolder& run);

/// A setting that has another value than before, as YAML writes them.
struct ChangedSetting {
  std::string key, was, is;
  std::string line() const;
};
/// Lines of a message, the first dozen of them.
std::string listed(std::vector<std::string> lines);
std::vector<ChangedSetting> changed_settings(Recipe was, Recipe is);

/// The settings of a run: config.yaml, compared with what one of its checkpoints says of itself. A usage
/// error lists what differs of the settings that may not change; with `all`, of any, unless the program
/// itself wrote config.yaml so. A tokenizer that is not the checkpoint's is a checkpoint error. Checkpoints
/// of before these were kept are taken with a warning.
Recipe read_settings(const RunFolder& run, const nlohmann::json& metadata, bool all = false);

/// The settings that the checkpoint was saved with; those of `otherwise` where it does not say.
Recipe settings_of(const nlohmann::json& metadata, const Recipe& otherwise);

}  // namespace tightloop
