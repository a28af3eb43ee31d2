#include "data/store/prepare.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/folder_lock.h"
#include "core/hash.h"
#include "core/io/json_depth.h"
#include "core/log.h"
#include "data/mixture.h"
#include "data/read/data_files.h"
#include "data/store/held_out_tail.h"
#include "data/store/prepare_key.h"
#include "data/store/shard_writer.h"
#include "data/store/tokenize.h"

namespace tightloop {

namespace {

using nlohmann::json;

constexpr const char* kState = "prepare.json";

struct State {
  std::string key;
  uint64_t stage = 0;    // 0: files to learn from, 1: files to evaluate on, or the tail to cut off, 2: done
  uint64_t records = 0;  // of this stage that are in finished shards
  PrepareProgress totals;
  BadRecords bad;  // among those records
};

json to_json(const State& state) {
  const PrepareProgress& t = state.totals;
  return {{"key", state.key},
          {"stage", state.stage},
          {"records", state.records},
          {"all_records", t.records},
          {"shards", t.shards},
          {"train_documents", t.train_documents},
          {"train_tokens", t.train_tokens},
          {"val_documents", t.val_documents},
          {"val_tokens", t.val_tokens},
          {"bad", std::vector<uint64_t>(state.bad.counts().begin(), state.bad.counts().end())},
          {"first_bad", state.bad.first_ones()},
          {"bad_bytes", state.bad.bytes()}};
}

State read_state(const fs::path& path) {
  try {
    const json j = json::parse(shallow_json(read_file(path)));
    State state;
    state.key = j.at("key"), state.stage = j.at("stage"), state.records = j.at("records");
    state.totals = {j.at("all_records"),   j.at("train_documents"), j.at("train_tokens"),
                    j.at("val_documents"), j.at("val_tokens"),      j.at("shards")};
    if (j.contains("bad"))
      state.bad.merge(j["bad"].get<std::vector<uint64_t>>(),
                      j.at("first_bad").get<std::vector<std::string>>(),
                      j.value("bad_bytes", std::array<uint64_t, 2>{}));
    return state;
  } catch (const json::exception& error) {
    throw data_error("'{}' is damaged: {}. Remove the folder to prepare it anew.", path.string(),
                     error.what());
  }
}

/// How far a folder is; a new one is at the start, and so is one without a finished shard.
State state_of(const fs::path& folder, const std::string& key) {
  const fs::path path = folder / kState;
  State start;
  start.key = key;
  if (!path_exists(path)) return start;
  State state = read_state(path);
  if (state.key == key) return state;
  if (state.totals.shards == 0) return start;
  throw data_error(
      "'{}' holds shards of other files, settings or another tokenizer. Choose another folder, or remove it.",
      folder.string());
}

/// Of work that was stopped.
std::string what_is_kept(const fs::path& folder, const State& state) {
  const uint64_t shards = state.totals.shards;
  if (shards == 0)
    return fmt::format("No shard in '{}' was finished yet: the same command starts it from the beginning.",
                       folder.string());
  return fmt::format("{} in '{}' {} kept: the same command goes on after {}.",
                     shards == 1 ? "One finished shard" : fmt::format("{} finished shards", shards),
                     folder.string(), shards == 1 ? "is" : "are", shards == 1 ? "it" : "them");
}

PrepareReport prepare_mixture(const SourceOptions& options, const PrepareOptions& prepare_options) {
  PrepareReport all;
  std::set<std::string> names;
  std::string yaml = "data:\n  mixture:\n";
  for (const MixtureEntry& entry : parse_mixture(options.data)) {
    const bool plain = entry.name.find_first_of("/ ") == std::string::npos && entry.name != "tokenizer";
    if (!plain || !names.insert(entry.name).second) {
      throw usage_error(
          "data.mixture: the name '{}' cannot be that of a folder of shards. Give every entry a name of its "
          "own.",
          entry.name);
    }
    std::string shards = (prepare_options.folder / entry.name).string();
    if (entry.data.source != DataSource::kShards) {
      PrepareOptions one = prepare_options;
      one.folder = shards;
      const PrepareReport report = prepare(
          {entry.data, options.tasks, options.chat, options.tokenizer, options.target_tokenizer}, one);
      all.totals.records += report.totals.records, all.totals.shards += report.totals.shards;
      all.totals.train_documents += report.totals.train_documents;
      all.totals.train_tokens += report.totals.train_tokens;
      all.totals.val_documents += report.totals.val_documents,
          all.totals.val_tokens += report.totals.val_tokens;
      all.bad.merge(report.bad);
      if (!report.finished) return all;
    } else {
      shards = fmt::format("{}", fmt::join(entry.data.train, ","));
    }
    const std::string share =
        entry.weight > 0 ? fmt::format("weight={}", entry.weight) : fmt::format("epochs={}", entry.epochs);
    all.mixture.push_back(
        fmt::format("name={} source=shards train={} {} cap={}", entry.name, shards, share, entry.cap));
    yaml += fmt::format("    - {}\n", all.mixture.back());
  }
  save_tokenizers(options, prepare_options.folder);
  write_file_whole(prepare_options.folder / "mixture.yaml", yaml);
  all.finished = true;
  return all;
}

// A pair of shards, one of each part, that are finished together.
class Shards {
 public:
  Shards(const PrepareOptions& options, uint64_t tokenizer, int64_t vocab_size)
      : options_(options), tokenizer_(tokenizer), vocab_size_(vocab_size) {}

  void open(uint64_t number) {
    const fs::path& folder = options_.folder;
    train_ = std::make_unique<ShardWriter>(shard_path(folder, "train", number), vocab_size_, tokenizer_);
    val_ = std::make_unique<ShardWriter>(shard_path(folder, "val", number), vocab_size_, tokenizer_);
  }
  bool full() const { return train_->tokens() + val_->tokens() >= options_.shard_tokens; }
  bool empty() const { return train_->documents() + val_->documents() == 0; }
  void finish(PrepareProgress& totals) {
    train_->finish();
    val_->finish();
    add_to(totals);
    ++totals.shards;
  }
  void add_to(PrepareProgress& totals) const {
    totals.train_documents += train_->documents();
    totals.train_tokens += train_->tokens();
    totals.val_documents += val_->documents();
    totals.val_tokens += val_->tokens();
  }
  ShardWriter& train() { return *train_; }
  ShardWriter& val() { return *val_; }

 private:
  const PrepareOptions& options_;
  const uint64_t tokenizer_;
  const int64_t vocab_size_;
  std::unique_ptr<ShardWriter> train_, val_;
};

}  // namespace

void require_finished(const fs::path& folder) {
  const fs::path path = folder / kState;
  if (path_exists(path) && read_state(path).stage < 2)
    throw data_error(
        "'{}' holds a part of the data: its preparation was not finished. Run the same prepare again.",
        folder.string());
}

PrepareReport prepare(const SourceOptions& options, const PrepareOptions& prepare) {
  if (!options.data.mixture.empty()) return prepare_mixture(options, prepare);
  const fs::path state_path = prepare.folder / kState;
  const std::string key = hex64(prepare_key(options));
  State state = state_of(prepare.folder, key);
  PrepareReport report{
      state.totals, BadRecords(options.data.on_bad_record == OnBadRecord::kFail), state.stage == 2, {}};
  report.bad.merge(state.bad);
  if (report.finished) return report;

  // One process at a time; who had to wait finds the work done, or goes on with it.
  FolderLock lock(prepare.folder);
  if (!lock.held()) log::info("Waiting for {}, which prepares '{}'.", lock.owner(), prepare.folder.string());
  lock.wait();
  state = state_of(prepare.folder, key);
  report.totals = state.totals, report.finished = state.stage == 2;
  report.bad = BadRecords(options.data.on_bad_record == OnBadRecord::kFail);
  report.bad.merge(state.bad);
  if (report.finished) return report;
  const auto write_state = [&] { write_file_whole(state_path, to_json(state).dump(2)); };
  if (state.totals.shards == 0) {
    save_tokenizers(options, prepare.folder);
    write_state();  // before the first shard: whoever finds that is told that there is more to come
  }

  Shards shards(prepare, tokens_fingerprint(options), vocab_size_of(options));
  shards.open(state.totals.shards);
  const auto renderer = make_renderer(options);
  const bool has_val_files = has_val_records(options.data), tail = holds_out_tail(options.data);
  bool stopped = false;
  for (; state.stage < 2 && !stopped; ++state.stage, state.records = 0) {
    if (state.stage == 1 && !has_val_files) continue;
    const double val_share = state.stage == 1 ? 1 : has_val_files || tail ? 0 : options.data.holdout;
    auto sink = std::make_unique<SplitSink>(shards.train(), shards.val(), val_share, 0);
    const auto reader = open_records(options.data, options.tasks, state.stage == 1);
    const TokenizeOptions tokenizing{static_cast<int>(options.data.tokenizer_threads),
                                     options.data.tokenizer_batch_size, state.records};
    // Bad records count too: what is skipped on resuming is counted in the file, not in what came of it.
    uint64_t seen = state.records;
    const uint64_t before = state.totals.records - state.records;
    const auto keep = [&](const Record& record, const Rendered& rendered) {
      sink->add(record, rendered);
      seen = record.index + 1;
      if (record.last && shards.full()) {
        shards.finish(state.totals);
        state.records = seen;
        state.totals.records = before + seen;
        state.bad = report.bad;
        write_state();
        shards.open(state.totals.shards);
        sink = std::make_unique<SplitSink>(shards.train(), shards.val(), val_share, 0);
      }
      report.totals = state.totals;
      report.totals.records = before + seen;
      shards.add_to(report.totals);
      stopped = prepare.progress && !prepare.progress(report.totals);
      return !stopped;
    };
    try {
      tokenize(*reader, *renderer, tokenizing, report.bad, keep);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kInterrupted) throw;
      throw Error(error.code(), fmt::format("{} {}", error.what(), what_is_kept(prepare.folder, state)));
    }
    if (stopped) break;
    sink->finish();
    state.totals.records = before + seen;
  }
  if (stopped) return report;
  PrepareProgress now = state.totals;
  shards.add_to(now);
  refuse_too_many_bad(options.data, report.bad,
                      (now.train_documents + now.val_documents) / (options.data.holds_pairs() ? 2 : 1));
  if (!shards.empty() || state.totals.shards == 0) shards.finish(state.totals);
  state.bad = report.bad;
  if (tail) {
    state.stage = 1, state.records = 0;
    write_state();
    cut_tail(prepare.folder, tail_begin(options.data, state.totals.train_tokens), state.totals);
  }
  state.stage = 2;
  write_state();
  report.totals = state.totals;
  report.finished = true;
  return report;
}

}  // namespace tightloop
