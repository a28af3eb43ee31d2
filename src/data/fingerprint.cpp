#include "data/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/files.h"
#include "core/hash.h"
#include "data/dataset.h"
#include "data/mixture.h"

namespace tightloop {

namespace {

using nlohmann::json;

constexpr uint64_t kBlock = 64 << 10;
constexpr uint64_t kAll = 256 << 20;  // bytes to hash of all files: a fraction of a second
constexpr uint64_t kLeast = 8 * kBlock;

std::string hash_of(const fs::path& path, uint64_t most) {
  const MappedFile file(path);
  const std::string_view bytes = file.text();
  if (bytes.size() <= most) return hex64(hash64(bytes));
  Hasher hasher;
  const uint64_t blocks = most / kBlock, last = bytes.size() - kBlock;
  for (uint64_t i = 0; i < blocks; ++i) {
    const auto at = static_cast<uint64_t>(static_cast<double>(last) * static_cast<double>(i) /
                                          static_cast<double>(blocks - 1));
    hasher.update(bytes.data() + std::min(at, last), kBlock);
  }
  return hex64(hasher.digest());
}

std::vector<fs::path> all_files(const DataConfig& config) {
  if (config.mixture.empty()) return files_of(config);
  std::vector<fs::path> files;
  for (const MixtureEntry& entry : parse_mixture(config))
    std::ranges::move(files_of(entry.data), std::back_inserter(files));
  return files;
}

// "was, is" of one file; empty where its bytes are the same.
std::string change(const json& was, const json& is) {
  const auto bytes = [](const json& file) { return file.at("bytes").get<uint64_t>(); };
  if (was.at("xxh3") == is.at("xxh3") && bytes(was) == bytes(is)) return {};
  const auto path = is.at("path").get<std::string>(), before = was.at("path").get<std::string>();
  return fmt::format("'{}': was {} bytes with hash {}{}, is {} bytes with hash {}", path, bytes(was),
                     was.at("xxh3").get<std::string>(), before == path ? "" : fmt::format(" in '{}'", before),
                     bytes(is), is.at("xxh3").get<std::string>());
}

std::map<std::string, const json*> by_path(const json& files) {
  std::map<std::string, const json*> found;
  for (const json& file : files) found.emplace(file.at("path").get<std::string>(), &file);
  return found;
}

}  // namespace

std::string json_text(const std::string& text) {
  const std::string quoted = json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  return json::parse(quoted).get<std::string>();
}

json fingerprint_files(const DataConfig& config, uint64_t per_file) {
  const auto paths = all_files(config);
  if (per_file == 0)
    per_file = std::max(kLeast, kAll / std::max<uint64_t>(1, paths.size()) / kBlock * kBlock);
  json files = json::array();
  for (const fs::path& path : paths)
    files.push_back({{"path", json_text(path.string())},
                     {"bytes", file_bytes(path)},
                     {"time", file_time(path)},
                     {"xxh3", hash_of(path, per_file)}});
  return {{"per_file", per_file}, {"files", files}};
}

ChangedFiles compare_files(const json& was, const DataConfig& config) {
  const auto per_file = was.at("per_file").get<uint64_t>();
  const json &before = was.at("files"),
             now = fingerprint_files(config, std::max(per_file, kLeast)).at("files");
  ChangedFiles result;
  if (before.size() != now.size()) {
    const auto old_files = by_path(before), new_files = by_path(now);
    for (const auto& [path, file] : old_files)
      if (!new_files.contains(path)) result.changed.push_back(fmt::format("'{}': was there, is gone", path));
    for (const auto& [path, file] : new_files) {
      const auto old = old_files.find(path);
      auto line = old == old_files.end() ? fmt::format("'{}': is new", path) : change(*old->second, *file);
      if (!line.empty()) result.changed.push_back(std::move(line));
    }
    if (result.changed.empty())
      result.changed.push_back(fmt::format("were {} files, are {}", before.size(), now.size()));
    return result;
  }
  for (size_t i = 0; i < now.size(); ++i) {
    const auto path = now[i].at("path").get<std::string>(), old = before[i].at("path").get<std::string>();
    if (auto line = change(before[i], now[i]); !line.empty()) {
      result.changed.push_back(std::move(line));
    } else if (path != old) {
      result.moved.push_back(fmt::format("'{}': was '{}', the same bytes", path, old));
    } else if (before[i].at("time") != now[i].at("time") && now[i].at("bytes").get<uint64_t>() > per_file) {
      result.moved.push_back(fmt::format(
          "'{}': was written to or copied since; its size and all blocks looked at are the same", path));
    }
  }
  return result;
}

}  // namespace tightloop
