#include "train/run/checkpoint_list.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <ranges>

#include "core/error.h"
#include "core/files.h"
#include "core/io/json_depth.h"
#include "core/log.h"
#include "train/run/checkpoint.h"
#include "train/run/checkpoint_name.h"
#include "train/run/run_events.h"
#include "train/settings/recipe.h"

namespace tightloop {

namespace {

constexpr const char *kVerifiedFile = "verified.json", *kProblem = "problem";

double seconds_old(const fs::path& file) {
  const auto now = fs::file_time_type::clock::now().time_since_epoch();
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  return std::max(0.0, static_cast<double>(nanoseconds - file_time(file)) * 1e-9);
}

/// The files that state.json lists, with the times at which they were put there. A file that comes back from
/// a backup may have the time of the damaged one; when its inode changed is the system's own word.
nlohmann::json dated(const fs::path& folder, const nlohmann::json& files) {
  nlohmann::json all = files;
  for (auto& [name, file] : all.items()) {
    struct stat status {};
    if (::stat((folder / name).c_str(), &status) == 0)
      file["changed"] = status.st_ctim.tv_sec * 1'000'000'000 + status.st_ctim.tv_nsec;
  }
  return all;
}

/// What verify_checkpoint() found, if nothing was written since.
nlohmann::json last_verification(const fs::path& folder, const nlohmann::json& files) {
  const fs::path mark = folder / kVerifiedFile;
  if (!path_exists(mark)) return {};
  auto json = nlohmann::json::parse(shallow_json(read_file(mark)), nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("files") && json["files"] == dated(folder, files)
             ? json
             : nlohmann::json();
}

/// Keeps beside the files what was found of them; `problem` is empty where they are whole.
void keep_verification(const fs::path& checkpoints, int64_t step, const std::string& problem) {
  const fs::path folder = checkpoint_folder(checkpoints, step);
  nlohmann::json found{{"time", unix_time()},
                       {"files", dated(folder, read_checkpoint_state(checkpoints, step).files)}};
  if (!problem.empty()) found[kProblem] = problem;
  write_file_whole(folder / kVerifiedFile,
                   found.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

/// What can be said without reading the tensors.
void look_at(const fs::path& checkpoints, CheckpointFacts& facts) {
  const fs::path folder = checkpoint_folder(checkpoints, facts.step);
  std::error_code unreadable;
  for (const auto& file : fs::directory_iterator(folder, unreadable))
    if (const auto bytes = file.file_size(unreadable); !unreadable) facts.bytes += bytes;
  try {
    const auto [metadata, files] = read_checkpoint_state(checkpoints, facts.step);
    facts.in_passing = metadata.value("passing", int64_t{-1}) == facts.step;
    for (const auto& [name, file] : files.items()) {
      const auto expected = file.at("bytes").get<uint64_t>();
      if (!path_exists(folder / name)) throw checkpoint_error("'{}' is missing.", (folder / name).string());
      const uint64_t found = file_bytes(folder / name);
      if (found != expected)
        throw checkpoint_error("'{}' is truncated: {} of {} bytes.", (folder / name).string(), found,
                               expected);
      facts.age = seconds_old(folder / name);
    }
    const auto found = last_verification(folder, files);
    if (found.is_null()) return;
    if (found.contains(kProblem)) throw checkpoint_error("{}", found[kProblem].get<std::string>());
    facts.health = CheckpointHealth::kVerified;
  } catch (const std::exception& error) {
    facts.health = CheckpointHealth::kDamaged;
    facts.problem = error.what();
  }
}

/// train.keep_every of a run; 0 where its settings cannot be read.
int64_t keep_every_of(const RunFolder& run) {
  try {
    Recipe recipe;
    recipe.bind().load(run.config());
    return recipe.train.keep_every;
  } catch (const Error&) {
    return 0;
  }
}

}  // namespace

std::vector<CheckpointFacts> list_checkpoints(const RunFolder& run) {
  const int64_t every = keep_every_of(run);
  const auto best = best_step_of(run.checkpoints());
  std::vector<CheckpointFacts> all;
  for (const int64_t step : checkpoint_steps(run.checkpoints())) {
    CheckpointFacts& facts = all.emplace_back(CheckpointFacts{.step = step});
    facts.best = best == step;
    facts.kept = every > 0 && step % every == 0;
    look_at(run.checkpoints(), facts);
  }
  for (auto& facts : std::views::reverse(all))
    if (facts.health != CheckpointHealth::kDamaged) {
      facts.newest = true;
      const auto metadata = read_checkpoint_state(run.checkpoints(), facts.step).metadata;
      if (!metadata.contains("best") || !metadata["best"].contains("step")) break;
      for (auto& other : all)  // the best may be a later one that is damaged, which this one did not know
        if (other.best && metadata["best"]["step"] == other.step) other.best_evaluation = metadata["best"];
      break;
    }
  return all;
}

void verify_checkpoint(const fs::path& checkpoints, int64_t step) {
  try {
    load_checkpoint(checkpoints, step);
  } catch (const Error& error) {
    if (error.code() == ExitCode::kCheckpoint) try {
        keep_verification(checkpoints, step, error.what());
      } catch (const Error&) {  // without a state.json, say: then a look at the folder tells as much
      }
    throw;
  }
  try {
    keep_verification(checkpoints, step, {});
  } catch (const Error& error) {  // a run that may be read and not written
    log::warn("The checkpoint of step {} is whole; that is not kept: {}", step, error.what());
  }
}

}  // namespace tightloop
