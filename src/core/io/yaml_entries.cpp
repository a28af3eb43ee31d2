#include "core/io/yaml_entries.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "core/error.h"
#include "core/files.h"

namespace tightloop {

namespace {

Error not_understood(const std::filesystem::path& file, const YAML::Mark& mark, const std::string& what) {
  return usage_error("'{}', line {}: {}.", file.string(), mark.line + 1, what);
}

YamlItem item_of(const YAML::Node& key, const YAML::Node& value, const std::filesystem::path& file) {
  YamlItem item{key.Scalar(), {}, key.Mark().line + 1};
  const auto add = [&](const YAML::Node& node) {
    if (!node.IsScalar())
      throw not_understood(file, node.Mark(), fmt::format("'{}' must be a value or a list", item.key));
    item.values.push_back(node.Scalar());
  };
  if (value.IsSequence())
    for (const auto& node : value) add(node);
  else
    add(value);
  return item;
}

YamlEntry entry_of(const YAML::Node& node, const std::filesystem::path& file) {
  if (!node.IsMap()) throw not_understood(file, node.Mark(), "here must be 'key: value' lines");
  YamlEntry entry;
  for (const auto& pair : node) {
    entry.push_back(item_of(pair.first, pair.second, file));
    const auto& key = entry.back().key;
    if (std::ranges::count(entry, key, &YamlItem::key) > 1)
      throw not_understood(file, pair.first.Mark(), fmt::format("'{}' is set twice", key));
  }
  return entry;
}

}  // namespace

std::map<std::string, std::vector<YamlEntry>> read_yaml_entries(const std::filesystem::path& file) {
  std::map<std::string, std::vector<YamlEntry>> sections;
  try {
    const YAML::Node root = YAML::Load(read_file(file));
    if (!root.IsMap()) throw usage_error("'{}' is no YAML file of sections.", file.string());
    for (const auto& pair : root) {
      auto& entries = sections[pair.first.Scalar()];
      if (pair.second.IsSequence())
        for (const auto& node : pair.second) entries.push_back(entry_of(node, file));
      else if (pair.second.IsScalar())  // no section: whoever knows the sections says so
        entries.push_back({item_of(pair.first, pair.second, file)});
      else
        entries.push_back(entry_of(pair.second, file));
    }
  } catch (const YAML::Exception& error) {
    throw not_understood(file, error.mark, fmt::format("this is not YAML: {}", error.msg));
  }
  return sections;
}

void fill_fields(Fields& fields, const YamlEntry& entry, const std::filesystem::path& file) {
  auto& all = fields.all();
  for (const YamlItem& item : entry) {
    const std::string where = fmt::format("'{}', line {}", file.string(), item.line);
    const auto field = std::ranges::find_if(all, [&](const Field& f) { return f.name() == item.key; });
    if (field == all.end()) {
      std::vector<std::string> names;
      for (const Field& f : all) names.push_back(f.name());
      const auto guess = nearest(item.key, names);
      throw usage_error("{}: unknown key '{}'.{}", where, item.key,
                        guess ? fmt::format(" Did you mean '{}'?", *guess) : "");
    }
    if (field->is_list()) {
      field->set_list(item.values);
    } else {
      if (item.values.size() != 1) throw usage_error("{}: '{}' takes one value.", where, item.key);
      field->set(item.values[0], where);
    }
  }
}

}  // namespace tightloop
