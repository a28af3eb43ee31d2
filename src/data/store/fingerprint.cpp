#include "data/store/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "core/files.h"
#include "core/hash.h"
#include "core/interrupt.h"
#include "core/terminal/progress_line.h"
#include "data/read/data_files.h"

namespace tightloop {

namespace {

using nlohmann::json;

constexpr uint64_t kAll = 256 << 20;  // bytes to hash of all files: a fraction of a second
constexpr uint64_t kLargeBlock = 64 << 10, kSmallBlock = 4 << 10;
constexpr uint64_t kLeast = 2 * kSmallBlock;  // of a file: its first and its last block

// Few large reads where a file's share is worth several of them.
uint64_t block_of(uint64_t per_file) { return per_file < 8 * kLargeBlock ? kSmallBlock : kLargeBlock; }

uint64_t share_of(size_t files) {
  const uint64_t share = kAll / std::max<size_t>(1, files), block = block_of(share);
  return std::max(kLeast, share / block * block);
}

std::string hash_of(const fs::path& path, uint64_t most, ProgressLine& progress) {
  const MappedFile file(path);
  const std::string_view bytes = file.text();
  if (bytes.size() <= most) return hex64(hash64(bytes, progress));
  Hasher hasher;
  const uint64_t block = block_of(most), blocks = most / block, last = bytes.size() - block;
  for (uint64_t i = 0; i < blocks; ++i) {
    const auto at = static_cast<uint64_t>(static_cast<double>(last) * static_cast<double>(i) /
                                          static_cast<double>(blocks - 1));
    if (i % 256 == 0) throw_if_interrupted();
    hasher.update(bytes.data() + std::min(at, last), block);
    progress.add(block);
  }
  return hex64(hasher.digest());
}

// What hash_of() reads of all of them.
uint64_t hashed_bytes(const std::vector<DataFile>& files, uint64_t per_file) {
  uint64_t bytes = 0;
  for (const DataFile& file : files) bytes += std::min(file_bytes(file.path), per_file);
  return bytes;
}

// Unix time, in seconds, of what file_time() gives: the file system's clock counts from 2174 on.
double unix_seconds(int64_t file_time) {
  constexpr int64_t kFileClockZero = 6'437'664'000;
  constexpr int64_t kNanoseconds = 1'000'000'000;
  return static_cast<double>(file_time / kNanoseconds + kFileClockZero) +
         static_cast<double>(file_time % kNanoseconds) / 1e9;
}

// Older versions kept file_time() itself, an integer.
double written(const json& file) {
  const json& time = file.at("time");
  return time.is_number_integer() ? unix_seconds(time.get<int64_t>()) : time.get<double>();
}

constexpr const char* kHashing = "Hashing data files";

// All but the hash.
json facts_of(const DataFile& file) {
  return {{"path", json_text(file.path.string())},
          {"part", json_text(file.part)},
          {"bytes", file_bytes(file.path)},
          {"time", unix_seconds(file_time(file.path))}};
}

json describe(const DataFile& file, uint64_t per_file, ProgressLine& progress) {
  json is = facts_of(file);
  is["xxh3"] = hash_of(file.path, per_file, progress);
  return is;
}

// What compare_files() made last, by path, for the fingerprint that a resumed run takes next: its files are
// hashed once.
struct KeptHashes {
  uint64_t per_file = 0;
  std::map<std::string, json> files;
};
thread_local KeptHashes known;

// "was, is" of one file; empty where its bytes and what they are for are the same.
std::string change(const json& was, const json& is) {
  const auto bytes = [](const json& file) { return file.at("bytes").get<uint64_t>(); };
  const auto path = is.at("path").get<std::string>(), before = was.at("path").get<std::string>();
  if (was.at("xxh3") == is.at("xxh3") && bytes(was) == bytes(is)) {
    const auto now = is.at("part").get<std::string>(), part = was.value("part", now);  // old ones do not say
    return part == now ? "" : fmt::format("'{}': was in {}, is in {}", path, part, now);
  }
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
  const auto files = data_files(config);
  if (per_file == 0) per_file = share_of(files.size());
  const KeptHashes before = std::exchange(known, {});
  ProgressLine progress(kHashing, hashed_bytes(files, per_file));
  json described = json::array();
  for (const DataFile& file : files) {
    json is = facts_of(file);
    const auto it = before.files.find(is.at("path"));
    const bool same = it != before.files.end() && before.per_file == per_file &&
                      it->second.at("bytes") == is.at("bytes") && it->second.at("time") == is.at("time");
    is["xxh3"] = same ? it->second.at("xxh3").get<std::string>() : hash_of(file.path, per_file, progress);
    described.push_back(std::move(is));
  }
  return {{"per_file", per_file}, {"files", described}};
}

ChangedFiles compare_files(const json& was, const DataConfig& config) {
  const uint64_t per_file = std::max(was.at("per_file").get<uint64_t>(), kLeast);
  const json& before = was.at("files");
  const auto files = data_files(config);
  ProgressLine progress(kHashing, hashed_bytes(files, per_file));
  ChangedFiles result;
  if (before.size() != files.size()) {
    const auto old_files = by_path(before);
    std::set<std::string> names;
    std::vector<std::string> others;
    for (const DataFile& file : files) {
      const std::string path = json_text(file.path.string());
      names.insert(path);
      const auto old = old_files.find(path);
      auto line = old == old_files.end() ? fmt::format("'{}': is new", path)
                                         : change(*old->second, describe(file, per_file, progress));
      if (!line.empty()) others.push_back(std::move(line));
    }
    for (const auto& [path, file] : old_files)
      if (!names.contains(path)) result.changed.push_back(fmt::format("'{}': was there, is gone", path));
    std::ranges::move(others, std::back_inserter(result.changed));
    if (result.changed.empty())
      result.changed.push_back(fmt::format("were {} files, are {}", before.size(), files.size()));
    return result;
  }
  known = {per_file, {}};
  for (size_t i = 0; i < files.size(); ++i) {
    const json now = describe(files[i], per_file, progress);
    const auto path = now.at("path").get<std::string>(), old = before[i].at("path").get<std::string>();
    known.files[path] = now;
    if (auto line = change(before[i], now); !line.empty()) {
      result.changed.push_back(std::move(line));
    } else if (path != old) {
      result.moved.push_back(fmt::format("'{}': was '{}', the same bytes", path, old));
    } else if (written(before[i]) != written(now) && now.at("bytes").get<uint64_t>() > per_file) {
      result.moved.push_back(fmt::format(
          "'{}': was written to or copied since; its size and all blocks looked at are the same", path));
    }
  }
  return result;
}

}  // namespace tightloop
