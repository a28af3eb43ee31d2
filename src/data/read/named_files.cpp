#include "data/read/named_files.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <map>

#include "data/mixture.h"
#include "data/read/data_files.h"
#include "data/read/json_files.h"

namespace tightloop {

namespace {

using Identity = std::pair<dev_t, ino_t>;  // of a file, whatever name it goes by

class Named {
 public:
  void add(const std::vector<std::string>& patterns, const std::string& setting) {
    for (const fs::path& path : expand_all(patterns)) {
      struct stat status {};
      if (::stat(path.c_str(), &status) != 0) continue;
      if (status.st_size == 0) doubts_.push_back(fmt::format("'{}' is empty.", path.string()));
      const auto [before, is_new] = settings_.try_emplace({status.st_dev, status.st_ino}, setting);
      if (is_new) continue;
      const bool val = setting.ends_with("val") || setting.ends_with("val_target");
      const bool was_val = before->second.ends_with("val") || before->second.ends_with("val_target");
      doubts_.push_back(
          before->second == setting
              ? fmt::format("'{}' is named twice in {}: its documents come twice.", path.string(), setting)
              : fmt::format("'{}' is named in {} and in {}{}.", path.string(), before->second, setting,
                            val != was_val ? ": evaluation is on documents that were learned" : ""));
    }
  }
  void look_for_records(const std::vector<std::string>& patterns) {
    for (const fs::path& path : expand_all(patterns)) {
      if (!holds_json_records(path)) continue;
      doubts_.push_back(fmt::format(
          "'{}' holds JSON records, and data.source text learns them as they are written, braces and "
          "names included. --data.source jsonl learns what is in them.",
          path.string()));
      return;
    }
  }
  std::vector<std::string> doubts() && { return std::move(doubts_); }

 private:
  std::map<Identity, std::string> settings_;
  std::vector<std::string> doubts_;
};

}  // namespace

std::vector<std::string> doubts_about_files(const DataConfig& config) {
  std::vector<MixtureEntry> entries = parse_mixture(config);
  if (entries.empty()) entries.push_back({.data = config, .name = "data"});
  Named named;
  for (const MixtureEntry& entry : entries) {
    const DataConfig& data = entry.data;
    if (!data.reads_files() || data.source == DataSource::kShards) continue;
    named.add(data.train, entry.name + ".train");
    named.add(data.train_target, entry.name + ".train_target");
    named.add(data.val, entry.name + ".val");
    if (data.source == DataSource::kText)
      named.look_for_records(data.train), named.look_for_records(data.val);
    named.add(data.val_target, entry.name + ".val_target");
  }
  return std::move(named).doubts();
}

}  // namespace tightloop
