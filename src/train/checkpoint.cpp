#include "train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"

namespace tightloop {

namespace {

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";

fs::path folder_of(const fs::path& checkpoints, int64_t step) {
  return checkpoints / fmt::format("step-{:08}", step);
}

nlohmann::json write_tensors(const fs::path& folder, const char* name, const NamedTensors& tensors) {
  const uint64_t hash = write_safetensors(folder / name, tensors);
  return {{"bytes", fs::file_size(folder / name)}, {"xxh3", hex64(hash)}};
}

Safetensors read_tensors(const fs::path& folder, const char* name, const nlohmann::json& state) {
  const fs::path path = folder / name;
  const auto advice = fmt::format("Remove '{}' to go on from an older checkpoint.", folder.string());
  if (!fs::exists(path)) throw checkpoint_error("'{}' is missing. {}", path.string(), advice);
  const auto& expected = state.at("files").at(name);
  const MappedFile file(path);
  if (file.bytes().size() != expected.at("bytes").get<uint64_t>()) {
    throw checkpoint_error("'{}' is truncated: {} of {} bytes. {}", path.string(), file.bytes().size(),
                           expected.at("bytes").get<uint64_t>(), advice);
  }
  if (hex64(hash64(file.text())) != expected.at("xxh3").get<std::string>()) {
    throw checkpoint_error("'{}' is damaged: its checksum does not match. {}", path.string(), advice);
  }
  return read_safetensors(path);
}

}  // namespace

void save_checkpoint(const fs::path& checkpoints, int64_t step, const NamedTensors& weights,
                     const NamedTensors& optimizer, int64_t keep, const nlohmann::json& metadata,
                     int64_t best) {
  const fs::path place = folder_of(checkpoints, step);
  fs::path beside = place;
  beside += ".partial";
  try {
    fs::remove_all(beside);
    fs::create_directories(beside);
    nlohmann::json state{{"format", 1}, {"step", step}, {"metadata", metadata}};
    state["files"][kWeights] = write_tensors(beside, kWeights, weights);
    state["files"][kOptimizer] = write_tensors(beside, kOptimizer, optimizer);
    write_file_whole(beside / "state.json", state.dump(2) + "\n");
    sync_folder(beside);
    fs::remove_all(place);
    fs::rename(beside, place);
    sync_folder(checkpoints);
  } catch (const std::exception& error) {
    std::error_code ignored;
    fs::remove_all(beside, ignored);
    throw checkpoint_error("the checkpoint of step {} was not saved: {} Older checkpoints are untouched.",
                           step, error.what());
  }
  remove_old_checkpoints(checkpoints, keep, best);
}

void remove_old_checkpoints(const fs::path& checkpoints, int64_t keep, int64_t best) {
  const auto steps = checkpoint_steps(checkpoints);
  for (size_t i = 0; keep > 0 && i + keep < steps.size(); ++i)
    if (steps[i] != best) fs::remove_all(folder_of(checkpoints, steps[i]));
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
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(checkpoints, failure)) {
    if (const auto step = checkpoint_step(entry.path())) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

namespace {

struct Opened {
  fs::path folder;
  nlohmann::json state;
};

Opened open_checkpoint(const fs::path& checkpoints, std::optional<int64_t> step) {
  const auto steps = checkpoint_steps(checkpoints);
  if (steps.empty()) throw checkpoint_error("there is no checkpoint in '{}'.", checkpoints.string());
  if (step && !std::ranges::count(steps, *step)) {
    throw checkpoint_error("there is no checkpoint of step {} in '{}'; there are: {}.", *step,
                           checkpoints.string(), fmt::join(steps, ", "));
  }
  const fs::path folder = folder_of(checkpoints, step.value_or(steps.back()));
  const fs::path path = folder / "state.json";
  if (!fs::exists(path)) throw checkpoint_error("'{}' is missing.", path.string());
  try {
    return {folder, nlohmann::json::parse(read_file(path))};
  } catch (const nlohmann::json::exception& error) {
    throw checkpoint_error("'{}' is damaged: {}.", path.string(), error.what());
  }
}

// What `read` takes out of state.json, with errors that name the file.
template <class Read>
Checkpoint read_state(const Opened& opened, Read&& read) {
  try {
    Checkpoint checkpoint{.step = opened.state.at("step").get<int64_t>(),
                          .metadata = opened.state.value("metadata", nlohmann::json::object()),
                          .weights = {},
                          .optimizer = {}};
    read(checkpoint);
    return checkpoint;
  } catch (const nlohmann::json::exception& error) {
    throw checkpoint_error("'{}' is damaged: {}.", (opened.folder / "state.json").string(), error.what());
  }
}

}  // namespace

Checkpoint describe_checkpoint(const fs::path& checkpoints, std::optional<int64_t> step) {
  return read_state(open_checkpoint(checkpoints, step), [](Checkpoint&) {});
}

void update_metadata(const fs::path& checkpoints, int64_t step, const nlohmann::json& metadata) {
  auto [folder, state] = open_checkpoint(checkpoints, step);
  state["metadata"] = metadata;
  write_file_whole(folder / "state.json", state.dump(2) + "\n");
}

Checkpoint load_checkpoint(const fs::path& checkpoints, std::optional<int64_t> step, bool weights_only) {
  const auto opened = open_checkpoint(checkpoints, step);
  return read_state(opened, [&](Checkpoint& checkpoint) {
    checkpoint.weights = read_tensors(opened.folder, kWeights, opened.state);
    if (!weights_only) checkpoint.optimizer = read_tensors(opened.folder, kOptimizer, opened.state);
  });
}

}  // namespace tightloop
