#include "train/run/same_start.h"

#include <fmt/format.h>

#include <set>
#include <string>

#include "core/version.h"
#include "data/store/fingerprint.h"
#include "train/run/resume_settings.h"
#include "train/run/run_settings.h"

namespace tightloop {

namespace {

/// Where and how a process works: that may differ from machine to machine. What it reads is compared by what
/// is in it, not by name.
bool may_differ(const std::string& key) {
  static const std::set<std::string> keys{"run.dir",
                                          "train.device",
                                          "train.threads",
                                          "train.memory_limit",
                                          "data.num_workers",
                                          "data.prefetch_factor",
                                          "data.pin_memory",
                                          "data.tokenizer_threads",
                                          "data.tokenizer_batch_size",
                                          "data.cache",
                                          "wandb.python"};
  return keys.contains(key) || names_files(key);
}

}  // namespace

std::vector<Fact> start_facts(Recipe recipe) {
  std::vector<Fact> facts{{"version", kVersion}};
  for (const auto& [key, value] : values_in(json_text(recipe.bind().to_yaml())))
    if (!may_differ(key)) facts.push_back({key, value});
  const auto files = fingerprint_files(recipe.data).at("files");
  facts.push_back({"number of data files", std::to_string(files.size()), ExitCode::kData});
  for (size_t i = 0; i < files.size(); ++i) {
    const auto& file = files[i];
    // Compared by number and not by name: the same file may be elsewhere on another machine.
    facts.push_back({fmt::format("as data file {} ({})", i + 1, file.at("part").get<std::string>()),
                     fmt::format("{} bytes with hash {}", file.at("bytes").get<uint64_t>(),
                                 file.at("xxh3").get<std::string>()),
                     ExitCode::kData, fmt::format("'{}'", file.at("path").get<std::string>())});
  }
  return facts;
}

void require_same_start(Processes& processes, const Recipe& recipe) {
  if (processes.world() > 1) require_agreement(processes, start_facts(recipe));
}

std::vector<Fact> device_facts(const Device& device, at::ScalarType dtype) {
  return {{"as train.device", device.is_cuda() ? "a GPU" : "a CPU", ExitCode::kDevice, device.description()},
          {"as train.precision", c10::toString(dtype), ExitCode::kDevice}};
}

void require_same_device(Processes& processes, const Device& device, at::ScalarType dtype) {
  if (processes.world() > 1) require_agreement(processes, device_facts(device, dtype));
}

void require_same_data(Processes& processes, const RunFolder& run, const nlohmann::json& metadata) {
  if (processes.world() == 1) return;
  require_agreement(processes,
                    {{"tokenizer with hash", tokenizer_hash(run), ExitCode::kData},
                     {"documents", metadata.value("documents", nlohmann::json()).dump(), ExitCode::kData}});
}

}  // namespace tightloop
