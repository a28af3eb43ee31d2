#include "data/store/infer_source.h"

#include <algorithm>

#include "core/error.h"
#include "data/read/byte_stream.h"
#include "data/read/csv.h"
#include "data/read/data_files.h"
#include "data/read/json_files.h"
#include "data/render/render.h"
#include "data/store/source.h"

namespace tightloop {

namespace {

constexpr size_t kRecords = 16, kRecordBytes = 1 << 16;  // that are looked at for one that can be used

/// Whether nearly all lines have two columns or more.
bool has_columns(std::string_view head) {
  size_t lines = 0, columns = 0;
  for (size_t at = 0; at < head.size();) {
    const size_t end = head.find('\n', at);
    if (end == head.npos && lines > 0) break;  // it may be cut
    const std::string_view line = head.substr(at, end - at);
    at = end == head.npos ? head.size() : end + 1;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    ++lines;
    const size_t tab = line.find('\t');
    columns += tab != line.npos && tab > 0 && line.find_first_not_of(" \t\r", tab) != line.npos;
  }
  return lines > 0 && columns * 10 >= lines * 9;
}

/// The first record that can be used says what the others are.
void look_at_records(DataConfig config, InferredSource& found) {
  config.source = found.source, config.train = {found.file.string()};
  RecordBatch batch;
  try {
    open_records(config, {}, /*val=*/false)->read(batch, kRecords, kRecordBytes);
  } catch (const Error&) {  // without the plug-in for Parquet, say: the run will tell
  }
  found.holds = "records of an unknown shape";
  for (size_t i = 0; i < batch.size(); ++i)
    if (const auto shape = record_shape(batch[i], config)) {
      found.format = shape->format, found.holds = shape->holds;
      return;
    }
}

/// What one file holds, by its first bytes.
struct Look {
  DataSource source;
  std::string holds;
  bool json = false;
};

Look look_at(const fs::path& path, bool pairs, bool targets) {
  if (is_folder(path) || path.extension() == ".shard") return {DataSource::kShards, "tokenized shards"};
  if (targets) return {DataSource::kPairs, "sentences, and a second file their translations"};
  const std::string head = head_of(path), marks = first_marks(head);
  const bool json = opens_records(marks), parquet = head.starts_with("PAR1");
  if (!pairs) {
    if (parquet) return {DataSource::kParquet, "a Parquet table"};
    if (!json) refuse_csv({path});
    return json ? Look{DataSource::kJsonl, "JSON records", true} : Look{DataSource::kText, "plain text"};
  }
  const bool json_pairs = json || marks == "[[" || marks == "[\"";
  if (json_pairs) return {DataSource::kPairs, "pairs of sentences (JSON)", true};
  if (has_columns(head) && !parquet) return {DataSource::kPairs, "pairs of sentences (tab-separated)"};
  refuse_csv({path});
  throw data_error(
      "a translator learns sentences and their translations, and '{}' holds {}. Write a sentence, a tab and "
      "its translation in each line; or name two files, line by line: --data.train a.en --data.train_target "
      "a.de; or JSON objects with data.source_field and data.target_field.",
      path.string(), parquet ? "a Parquet table" : "lines without a tab");
}

/// Files that are not empty; a folder with shards of this part stands for them.
std::vector<fs::path> filled_files(const std::vector<std::string>& patterns, const std::string& part) {
  std::vector<fs::path> files;
  for (const std::string& pattern : patterns) {
    if (is_folder(pattern) && path_exists(fs::path(pattern) / (part + "-00000.shard"))) {
      files.emplace_back(pattern);
      continue;
    }
    for (const fs::path& path : expand_all({pattern}))
      if (file_bytes(path) > 0) files.push_back(path);
  }
  return files;
}

}  // namespace

InferredSource infer_source(const DataConfig& config, bool pairs) {
  const std::vector<fs::path> train = filled_files(config.train, "train");
  if (train.empty()) {
    const std::vector<fs::path> empty = expand_all(config.train);
    const DataSource source = pairs ? DataSource::kPairs : DataSource::kText;
    if (empty.empty()) return {.source = source, .holds = "nothing"};
    return {.source = source, .holds = "plain text", .file = empty[0]};
  }
  const Look look = look_at(train[0], pairs, !config.train_target.empty());
  const auto demand_the_same = [&](const fs::path& path, bool targets, const char* setting) {
    const Look other = look_at(path, pairs, targets);
    if (other.source == look.source && other.json == look.json) return;
    throw data_error(
        "'{}' (data.train) looks like {}, and '{}' ({}) like {}. Name files of one kind, mix kinds with "
        "data.mixture, or say with data.source what all of them are to be read as.",
        train[0].string(), look.holds, path.string(), setting, other.holds);
  };
  for (size_t i = 1; i < train.size(); ++i)
    demand_the_same(train[i], !config.train_target.empty(), "data.train");
  for (const fs::path& path : filled_files(config.val, "val"))
    demand_the_same(path, !config.val_target.empty(), "data.val");
  InferredSource found{.source = look.source, .holds = look.holds, .file = train[0]};
  if (is_one_of(found.source, {DataSource::kJsonl, DataSource::kParquet})) look_at_records(config, found);
  return found;
}

}  // namespace tightloop
