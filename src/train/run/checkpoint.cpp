#include "train/run/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>
#include <ranges>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/io/json_depth.h"
#include "core/io/verify_file.h"
#include "core/log.h"
#include "core/terminal/progress_line.h"
#include "core/terminal/terminal.h"

namespace tightloop {

namespace {

constexpr const char* kState = "state.json";
constexpr const char* kPartial = ".partial";    // begins an ending: not whole yet, or no more
constexpr const char* kReplaced = ".replaced";  // whole, and out of the way of a new one of the same step
constexpr int kFormat = 3;  // 1: state.json without a checksum of its own; 2: no file in pieces

fs::path named(const fs::path& checkpoints, int64_t step, const char* ending = "") {
  return checkpoints / fmt::format("step-{:08}{}", step, ending);
}

/// ".partial", or with a number where something of that name could not be removed.
fs::path partial_of(const fs::path& checkpoints, int64_t step) {
  fs::path path = named(checkpoints, step, kPartial);
  for (int number = 1; path_exists(path); ++number)
    path = named(checkpoints, step, fmt::format("{}-{}", kPartial, number).c_str());
  return path;
}

/// What cannot be removed or put back stays, and is no reason to stop a run.
void try_to(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    log::warn("An old checkpoint stays: {}", error.what());
  }
}

/// Of a folder that goes, first the name goes: one that is half removed is not taken for a checkpoint.
void remove_checkpoint(const fs::path& checkpoints, int64_t step) {
  const fs::path partial = partial_of(checkpoints, step);
  move_path(named(checkpoints, step), partial);
  remove_path(partial);
}

/// What saves that were killed or failed left behind goes; what they had put aside comes back.
void clear_up(const fs::path& checkpoints) {
  for (const fs::path& entry : folder_entries(checkpoints)) {
    if (!checkpoint_step(entry.stem())) continue;
    const fs::path folder = checkpoints / entry.stem();
    if (entry.extension().string().starts_with(kPartial)) try_to([&] { remove_path(entry); });
    if (entry.extension() == kReplaced)
      try_to([&] { path_exists(folder) ? remove_path(entry) : move_path(entry, folder); });
  }
}

/// By name: the same file, whoever of several processes had which tensors, and in which order.
nlohmann::json write_tensors(const fs::path& folder, const char* name, NamedTensors tensors,
                             const std::function<void(uint64_t)>& wrote) {
  std::ranges::sort(tensors, {}, [](const auto& one) -> const std::string& { return one.first; });
  const uint64_t hash = write_safetensors(folder / name, tensors, {}, wrote);
  return {{"bytes", file_bytes(folder / name)}, {"xxh3", hex64(hash)}};
}

Safetensors read_tensors(const fs::path& folder, const char* name, const nlohmann::json& state) {
  const fs::path path = folder / name;
  if (!path_exists(path)) throw checkpoint_error("'{}' is missing.", path.string());
  const MappedFile file(path);
  ProgressLine progress(fmt::format("Reading {}", path.string()), file.bytes().size());
  verify_file(file, state.at("files").at(name),
              [&](std::string_view text) { return hash64(text, progress); });
  return read_safetensors(path);
}

/// Before anything is written: a disk that fills up in the middle of a save costs its time, and others
/// theirs.
void require_space(const fs::path& folder, uint64_t bytes) {
  constexpr uint64_t kBesides = 1 << 16;  // state.json, folders
  std::error_code unknown;
  const auto space = fs::space(folder, unknown);
  // Some network file systems do not say how large they are.
  if (unknown || space.capacity == 0 || space.available >= bytes + kBesides) return;
  throw checkpoint_error("there is too little space: it needs {}, {} more than the disk of '{}' has left.",
                         human_bytes(static_cast<double>(bytes + kBesides)),
                         human_bytes(static_cast<double>(bytes + kBesides - space.available)),
                         folder.string());
}

std::string checksum(nlohmann::json state) {
  state.erase("xxh3");
  return hex64(hash64(state.dump()));
}

nlohmann::json read_state(const fs::path& path, int64_t step) {
  if (!path_exists(path)) throw checkpoint_error("'{}' is missing.", path.string());
  const auto state =
      nlohmann::json::parse(shallow_json(read_file(path)), nullptr, /*allow_exceptions=*/false);
  if (!state.is_object()) throw checkpoint_error("'{}' is damaged: it is cut, or no JSON.", path.string());
  const int format = state.at("format").get<int>();
  if (format > kFormat)
    throw checkpoint_error("'{}' is of a newer version of this program (format {}).", path.string(), format);
  const bool old = format == 1 && !state.contains("xxh3");
  if ((!old && state.at("xxh3").get<std::string>() != checksum(state)) ||
      state.at("step").get<int64_t>() != step)
    throw checkpoint_error("'{}' is damaged: its checksum does not match.", path.string());
  return state;
}

/// The oldest that has what it needs, so that older versions of this program can read it.
int format_of(const nlohmann::json& files) {
  const auto pieces = [](const nlohmann::json& file) { return file.contains("pieces"); };
  return std::ranges::any_of(files, pieces) ? kFormat : 2;
}

void write_state(const fs::path& path, nlohmann::json state) {
  state["xxh3"] = checksum(state);
  write_file_whole(path, state.dump(2) + "\n");
}

Checkpoint load_one(const fs::path& checkpoints, int64_t step, bool weights_only) {
  const fs::path folder = checkpoint_folder(checkpoints, step);
  try {
    const auto state = read_state(folder / kState, step);
    return {.step = step,
            .metadata = state.value("metadata", nlohmann::json::object()),
            .weights = read_tensors(folder, kWeightsFile, state),
            .optimizer = weights_only ? Safetensors{} : read_tensors(folder, kOptimizerFile, state)};
  } catch (const nlohmann::json::exception& error) {
    throw checkpoint_error("'{}' is damaged: {}.", (folder / kState).string(), error.what());
  }
}

}  // namespace

fs::path checkpoint_folder(const fs::path& checkpoints, int64_t step) {
  const fs::path folder = named(checkpoints, step), replaced = named(checkpoints, step, kReplaced);
  return !path_exists(folder) && path_exists(replaced) ? replaced : folder;
}

CheckpointState read_checkpoint_state(const fs::path& checkpoints, int64_t step) {
  const fs::path path = checkpoint_folder(checkpoints, step) / kState;
  try {
    const auto state = read_state(path, step);
    return {state.value("metadata", nlohmann::json::object()), state.at("files")};
  } catch (const nlohmann::json::exception& error) {
    throw checkpoint_error("'{}' is damaged: {}.", path.string(), error.what());
  }
}

void save_checkpoint(const fs::path& checkpoints, int64_t step, const NamedTensors& weights,
                     const NamedTensors& optimizer, const nlohmann::json& metadata,
                     const std::function<void(uint64_t)>& wrote) {
  const auto write = [&](const fs::path& folder) {
    return nlohmann::json{{kWeightsFile, write_tensors(folder, kWeightsFile, weights, wrote)},
                          {kOptimizerFile, write_tensors(folder, kOptimizerFile, optimizer, wrote)}};
  };
  save_checkpoint_files(checkpoints, step, bytes_of(weights) + bytes_of(optimizer), write, metadata);
}

void save_checkpoint_files(const fs::path& checkpoints, int64_t step, uint64_t bytes, const WriteFiles& write,
                           const nlohmann::json& metadata) {
  const fs::path folder = named(checkpoints, step), replaced = named(checkpoints, step, kReplaced);
  try {
    clear_up(checkpoints);
    require_space(checkpoints, bytes);
    const fs::path partial = partial_of(checkpoints, step);
    make_folder(partial);
    nlohmann::json state{{"step", step}, {"metadata", metadata}, {"files", write(partial)}};
    state["format"] = format_of(state["files"]);
    write_state(partial / kState, state);
    sync_folder(partial);
    if (path_exists(folder)) move_path(folder, replaced);
    move_path(partial, folder);
    sync_folder(checkpoints);
  } catch (const std::exception& error) {
    try_to([&] { clear_up(checkpoints); });
    throw checkpoint_error("the checkpoint of step {} was not saved: {} Older checkpoints are untouched.",
                           step, error.what());
  }
  // From here on the new one is safe, and whatever cannot be removed is no reason to stop a run.
  try_to([&] { remove_path(replaced); });
}

std::vector<int64_t> checkpoints_to_remove(const std::vector<int64_t>& steps, const Retention& retention) {
  const auto stays = [&](int64_t step) {
    return step == retention.best || step == retention.named_best ||
           (retention.every > 0 && step % retention.every == 0);
  };
  std::vector<int64_t> gone, counted;
  for (const int64_t step : steps) {
    if (step > retention.newest || step == retention.beside) continue;
    const bool replaced =
        std::ranges::count(retention.replaced, step) > 0 && step != retention.newest && !stays(step);
    (replaced ? gone : counted).push_back(step);
  }
  for (size_t i = 0; retention.keep > 0 && i + retention.keep < counted.size(); ++i)
    if (!stays(counted[i])) gone.push_back(counted[i]);
  std::ranges::sort(gone);
  return gone;
}

void remove_checkpoints(const fs::path& checkpoints, const std::vector<int64_t>& steps) {
  for (const int64_t step : steps) try_to([&] { remove_checkpoint(checkpoints, step); });
}

void remove_old_checkpoints(const fs::path& checkpoints, const Retention& retention) {
  std::vector<int64_t> steps;
  try_to([&] { steps = checkpoint_steps(checkpoints); });
  remove_checkpoints(checkpoints, checkpoints_to_remove(steps, retention));
}

void update_metadata(const fs::path& checkpoints, int64_t step, const nlohmann::json& metadata) {
  const fs::path path = checkpoint_folder(checkpoints, step) / kState;
  auto state = read_state(path, step);
  state["metadata"] = metadata;
  state["format"] = format_of(state["files"]);
  write_state(path, state);
}

std::optional<int64_t> checkpoint_step(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with("step-")) return {};
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + 5, end, step);
  if (parsed.ec != std::errc() || parsed.ptr != end) return {};
  return step;
}

std::vector<int64_t> checkpoint_steps(const fs::path& checkpoints) {
  std::vector<int64_t> steps;
  for (const fs::path& entry : folder_entries(checkpoints)) {
    const auto step = checkpoint_step(entry.extension() == kReplaced ? entry.stem() : entry);
    if (step) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  steps.erase(std::ranges::unique(steps).begin(), steps.end());
  return steps;
}

Checkpoint load_checkpoint(const fs::path& checkpoints, std::optional<int64_t> step, bool weights_only) {
  const auto steps = checkpoint_steps(checkpoints);
  if (steps.empty()) throw checkpoint_error("there is no checkpoint in '{}'.", checkpoints.string());
  if (step && !std::ranges::count(steps, *step)) {
    throw checkpoint_error("there is no checkpoint of step {} in '{}'; there are: {}.", *step,
                           checkpoints.string(), fmt::join(steps, ", "));
  }
  const auto gone = [&](int64_t one) { return !std::ranges::count(checkpoint_steps(checkpoints), one); };
  if (step) try {
      return load_one(checkpoints, *step, weights_only);
    } catch (const Error& error) {
      if (error.code() == ExitCode::kInterrupted || !gone(*step)) throw;
      throw checkpoint_error(
          "the checkpoint of step {} was removed from '{}' while it was read: a training has newer ones "
          "({}).",
          *step, checkpoints.string(), fmt::join(checkpoint_steps(checkpoints), ", "));
    }
  std::vector<std::pair<int64_t, std::string>> problems;
  const auto say_unreadable = [&] {
    for (const auto& [passed, problem] : problems)
      log::warn("The checkpoint of step {} cannot be read: {}", passed, problem);
  };
  for (const int64_t newest : std::views::reverse(steps)) {
    try {
      Checkpoint checkpoint = load_one(checkpoints, newest, weights_only);
      for (const auto& [passed, problem] : problems)
        log::warn("The checkpoint of step {} is passed over, and that of step {} taken instead: {}", passed,
                  newest, problem);
      return checkpoint;
    } catch (const Error& error) {
      if (error.code() == ExitCode::kInterrupted) throw;
      // A training that has removed it has a newer one.
      if (gone(newest)) return load_checkpoint(checkpoints, step, weights_only);
      if (steps.size() == 1) throw;
      problems.emplace_back(newest, error.what());
    } catch (...) {
      say_unreadable();
      throw;
    }
  }
  say_unreadable();
  throw checkpoint_error("none of the checkpoints in '{}' can be read (steps {}).", checkpoints.string(),
                         fmt::join(steps, ", "));
}

}  // namespace tightloop
