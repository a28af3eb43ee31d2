#include "data/infer_source.h"

#include <algorithm>

#include "core/error.h"
#include "data/byte_stream.h"
#include "data/data_files.h"
#include "data/json_files.h"
#include "data/render.h"
#include "data/source.h"

namespace tightloop {

namespace {

constexpr size_t kRecords = 16, kRecordBytes = 1 << 16;  // that are looked at for one that can be used

bool opens_records(const std::string& marks) { return marks == "{\"" || marks == "[{"; }

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
    make_reader(config, /*val=*/false)->read(batch, kRecords, kRecordBytes);
  } catch (const Error&) {  // without the plug-in for Parquet, say: the run will tell
  }
  found.holds = "records of an unknown shape";
  for (size_t i = 0; i < batch.size(); ++i)
    if (const auto shape = record_shape(batch[i], config)) {
      found.format = shape->format, found.holds = shape->holds;
      return;
    }
}

}  // namespace

bool holds_json_records(const fs::path& path) { return opens_records(first_marks(head_of(path))); }

InferredSource infer_source(const DataConfig& config, bool pairs) {
  for (const std::string& pattern : config.train)
    if (is_folder(pattern) && path_exists(fs::path(pattern) / "train-00000.shard"))
      return {"shards", "", "tokenized shards", pattern};
  const std::vector<fs::path> paths = expand_all(config.train);
  if (paths.empty()) return {pairs ? "pairs" : "text", "", "nothing", {}};
  const auto filled = std::ranges::find_if(paths, [](const fs::path& path) { return file_bytes(path) > 0; });
  InferredSource found{"text", "", "plain text", filled == paths.end() ? paths[0] : *filled};
  if (found.file.extension() == ".shard") return {"shards", "", "tokenized shards", found.file};
  if (!config.train_target.empty())
    return {"pairs", "", "sentences, and a second file their translations", found.file};
  const std::string head = head_of(found.file), marks = first_marks(head);
  const bool json = opens_records(marks), parquet = head.starts_with("PAR1");
  if (pairs) {
    found.source = "pairs";
    found.holds = json || marks == "[[" || marks == "[\"" ? "pairs of sentences (JSON)"
                                                          : "pairs of sentences (tab-separated)";
    if ((json || marks == "[[" || marks == "[\"" || has_columns(head)) && !parquet) return found;
    throw data_error(
        "a translator learns sentences and their translations, and '{}' holds {}. Write a sentence, a tab "
        "and "
        "its translation in each line; or name two files, line by line: --data.train a.en "
        "--data.train_target "
        "a.de; or JSON objects with data.source_field and data.target_field.",
        found.file.string(), parquet ? "a Parquet table" : "lines without a tab");
  }
  if (parquet) found.source = "parquet";
  if (json) found.source = "jsonl";
  if (found.source != "text") look_at_records(config, found);
  return found;
}

}  // namespace tightloop
