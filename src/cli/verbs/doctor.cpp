#include "cli/verbs/doctor.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <torch/headeronly/version.h>

#include <CLI/App.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "core/cpu.h"
#include "core/device.h"
#include "core/error.h"
#include "core/plugin.h"
#include "core/terminal/terminal.h"
#include "core/threads.h"
#include "data/read/parquet.h"

namespace tightloop::cli {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kCopyBytes = size_t{256} << 20;
constexpr int64_t kGigabyte = int64_t{1} << 30;

struct Report {
  Json facts;
  std::vector<std::string> advice;
};

void examine_cpu(Report& report) {
  Json features;
  for (const char* flag : {"avx2", "avx512f", "avx512_bf16", "amx_bf16"}) features[flag] = cpu_has(flag);
  report.facts["cpu"] = {
      {"model", cpu_info("model name")}, {"cores", available_cores()}, {"features", features}};
}

void examine_memory_and_disk(Report& report) {
  const int64_t total = cpu_device().total_memory(), free = cpu_device().free_memory();
  report.facts["memory"] = {{"total", total}, {"free", free}};
  if (free < 2 * kGigabyte)
    report.advice.push_back("Little memory is free: close something, or use a small model and batch.");
  std::error_code failed;
  const fs::path here = fs::current_path(failed);
  const auto space = fs::space(here, failed);
  if (failed) return;
  report.facts["disk"] = {{"path", here.string()}, {"total", space.capacity}, {"free", space.available}};
  if (space.available < 5 * static_cast<uintmax_t>(kGigabyte))
    report.advice.push_back(
        "Under 5 GiB of disk are free here: checkpoints need about 12 bytes a parameter each.");
}

void examine_torch(Report& report) {
  report.facts["torch"] = {
      {"version", TORCH_VERSION}, {"threads", at::get_num_threads()}, {"kernels", at::get_cpu_capability()}};
}

Json examine_gpu(Device& device) {
  Json gpu{{"name", device.name()},
           {"description", device.description()},
           {"versions", device.versions()},
           {"memory_total", device.total_memory()},
           {"memory_free", device.free_memory()}};
  const CopySpeed speed = device.measure_copies(kCopyBytes);
  gpu["copy_bytes_per_second"] = {{"pinned_to_device", speed.pinned_to_device},
                                  {"pinned_from_device", speed.pinned_from_device},
                                  {"pageable_to_device", speed.pageable_to_device},
                                  {"pageable_from_device", speed.pageable_from_device}};
  return gpu;
}

std::string kernel_driver() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  return line;
}

void examine_gpus(Report& report) {
  const PluginState& plugin = load_cuda_plugin();
  report.facts["plugin"] = {
      {"loaded", plugin.loaded}, {"path", plugin.path.string()}, {"reason", plugin.reason}};
  report.facts["driver"] = kernel_driver();
  Json gpus = Json::array();
  for (int index = 0; index < cuda_device_count(); ++index) {
    const std::string name = fmt::format("cuda:{}", index);
    try {
      gpus.push_back(examine_gpu(device(name)));
    } catch (const std::exception& error) {  // say it and go on: that is what a doctor is for
      gpus.push_back({{"name", name}, {"error", error.what()}});
      report.advice.push_back(fmt::format("{} does not work: {}", name, error.what()));
    }
  }
  report.facts["gpus"] = gpus;
  if (cuda_device_count() > 0) return;
  report.advice.push_back("Training runs on the CPU: " + why_no_cuda());
  if (kernel_driver().empty())
    report.advice.push_back("If there is an NVIDIA GPU here, install its driver: nvidia-smi must answer.");
}

void examine_parquet(Report& report) {
  const fs::path path = plugin_path(kParquetPlugin);
  void* library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  const std::string reason = library ? "" : ::dlerror();
  if (library)
    ::dlclose(library);
  else
    report.advice.push_back(fmt::format(
        "Parquet files cannot be read: run {} (a checkout is then built again), or convert them to JSONL.",
        setup_command()));
  report.facts["parquet"] = {{"usable", reason.empty()}, {"reason", reason}};
}

void print_line(const char* what, const std::string& text) {
  std::fputs(fmt::format("{:<10}{}\n", what, text).c_str(), stdout);
}

std::string speed_text(const Json& speeds, const char* direction) {
  const auto rate = [&](const std::string& kind) {
    return human_bytes(speeds.at(kind + "_" + direction + "_device").get<double>());
  };
  return fmt::format("{} device: pinned {}/s, pageable {}/s", direction, rate("pinned"), rate("pageable"));
}

void print_text(const Report& report) {
  const Json& facts = report.facts;
  std::string features;
  for (const auto& [name, there] : facts["cpu"]["features"].items())
    features += fmt::format("  {} {}", name, there.get<bool>() ? "yes" : "no");
  const auto bytes = [](const Json& value) { return human_bytes(value.get<double>()); };
  print_line("cpu", fmt::format("{}, {} cores", facts["cpu"]["model"].get<std::string>(),
                                facts["cpu"]["cores"].get<int>()));
  print_line("", features.substr(features.empty() ? 0 : 2));
  print_line("memory",
             fmt::format("{} free of {}", bytes(facts["memory"]["free"]), bytes(facts["memory"]["total"])));
  if (facts.contains("disk"))
    print_line("disk", fmt::format("{} free of {} in {}", bytes(facts["disk"]["free"]),
                                   bytes(facts["disk"]["total"]), facts["disk"]["path"].get<std::string>()));
  print_line("torch",
             fmt::format("{}, {} threads, {} kernels", facts["torch"]["version"].get<std::string>(),
                         facts["torch"]["threads"].get<int>(), facts["torch"]["kernels"].get<std::string>()));
  const Json& plugin = facts["plugin"];
  print_line("plug-in", plugin["loaded"].get<bool>() ? "loaded: " + plugin["path"].get<std::string>()
                                                     : "not loaded: " + plugin["reason"].get<std::string>());
  if (const auto driver = facts["driver"].get<std::string>(); !driver.empty()) print_line("driver", driver);
  const Json& parquet = facts["parquet"];
  print_line("parquet",
             parquet["usable"].get<bool>() ? "usable" : "no: " + parquet["reason"].get<std::string>());
  if (facts["gpus"].empty()) print_line("gpu", "none");
  for (const Json& gpu : facts["gpus"]) {
    if (gpu.contains("error")) {
      print_line("gpu", gpu["name"].get<std::string>() + ": " + gpu["error"].get<std::string>());
      continue;
    }
    print_line("gpu", fmt::format("{}, {} free of {}", gpu["description"].get<std::string>(),
                                  bytes(gpu["memory_free"]), bytes(gpu["memory_total"])));
    print_line("", gpu["versions"].get<std::string>());
    for (const char* direction : {"to", "from"})
      print_line("", speed_text(gpu["copy_bytes_per_second"], direction));
  }
  std::fputs(report.advice.empty() ? "\nNothing is missing.\n" : "\nWhat to do:\n", stdout);
  for (const auto& line : report.advice) std::fputs(("- " + line + "\n").c_str(), stdout);
}

}  // namespace

int doctor(bool json) {
  Report report;
  examine_cpu(report);
  examine_memory_and_disk(report);
  examine_torch(report);
  examine_parquet(report);
  examine_gpus(report);
  report.facts["advice"] = report.advice;
  if (json)
    std::fputs((report.facts.dump(2) + "\n").c_str(), stdout);
  else
    print_text(report);
  return 0;
}

void add_doctor(CLI::App& app) {
  auto* verb =
      app.add_subcommand("doctor", "Say what this machine has, and what to do about what is missing");
  verb->footer("Example:\n  tightloop doctor --json");
  auto json = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "Print it as JSON");
  verb->callback([json] { doctor(*json); });
}

}  // namespace tightloop::cli
