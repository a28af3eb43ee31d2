#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/config.h"

namespace tightloop {

/// `key: value` of a YAML file, the value as its text.
struct YamlItem {
  std::string key;
  std::vector<std::string> values;  // several only of a list
  int64_t line = 0;
};
using YamlEntry = std::vector<YamlItem>;

/// A YAML file whose keys at the top each hold one mapping or a list of such, the values of which are texts,
/// numbers or lists of them. A usage error names the line of what is not so.
std::map<std::string, std::vector<YamlEntry>> read_yaml_entries(const std::filesystem::path& file);

/// Sets the fields that an entry names. One that is unknown is a usage error with the nearest known name.
void fill_fields(Fields& fields, const YamlEntry& entry, const std::filesystem::path& file);

}  // namespace tightloop
