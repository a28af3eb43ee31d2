#include "core/plugin.h"

#include <dlfcn.h>
#include <sys/auxv.h>

#include <cstdlib>
#include <system_error>
#include <vector>

#include "core/error.h"

namespace tightloop {

namespace {

namespace fs = std::filesystem;

constexpr const char* kCudaPlugin = "libtightloop_cuda.so";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Opening the plug-in maps gigabytes of torch_cuda and its libraries; a look for the driver costs
// microseconds.
bool has_driver() {
  std::error_code ignored;
  if (fs::exists("/dev/nvidiactl", ignored) || fs::exists("/dev/dxg", ignored)) return true;
  void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver) ::dlclose(driver);
  return driver != nullptr;
}

/// Of libtightloop_core.so, or of the program that has the same inside.
fs::path library_folder() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&load_cuda_plugin), &self) == 0) return {};
  return fs::path(self.dli_fname).parent_path();
}

PluginState load() {
  PluginState state;
  if (const auto off = environment("TIGHTLOOP_NO_CUDA"); !off.empty() && off != "0") {
    state.reason = "TIGHTLOOP_NO_CUDA is set.";
    return state;
  }
  if (!has_driver()) {
    state.reason = "no NVIDIA driver was found (no /dev/nvidiactl, no libcuda.so.1).";
    return state;
  }
  const fs::path path = plugin_path(kCudaPlugin);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    state.reason = fmt::format(
        "the plug-in '{}' is not there. Build it where nvcc is, or point TIGHTLOOP_PLUGIN_DIR to its folder.",
        path.string());
    return state;
  }
  state.path = path;
  // Global, so that its registrations and torch's own CUDA libraries serve the whole process.
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
    state.loaded = true;
  } else {
    state.reason =
        fmt::format("the plug-in could not be loaded: {}. Run {} --cuda for torch's CUDA libraries.",
                    ::dlerror(), setup_command());
  }
  return state;
}

}  // namespace

const PluginState& load_cuda_plugin() {
  static const PluginState state = load();
  return state;
}

fs::path program_folder() {
  std::error_code ignored;
  // Started as `ld.so tightloop ...`, /proc/self/exe is the loader, which has no interpreter of its own.
  if (::getauxval(AT_BASE) == 0)
    return fs::canonical(reinterpret_cast<const char*>(::getauxval(AT_EXECFN)), ignored).parent_path();
  return fs::read_symlink("/proc/self/exe", ignored).parent_path();
}

fs::path plugin_path(const std::string& name) {
  if (const auto set = environment("TIGHTLOOP_PLUGIN_DIR"); !set.empty()) return fs::path(set) / name;
  const fs::path beside = program_folder() / name;
  std::vector<fs::path> installed{program_folder() / "../lib/tightloop" / name};
  if (const fs::path library = library_folder(); !library.empty())
    installed.push_back(library / "tightloop" / name);
  std::error_code ignored;
  if (!fs::exists(beside, ignored))
    for (const fs::path& path : installed)
      if (fs::exists(path, ignored)) return path.lexically_normal();
  return beside;
}

std::string setup_command() {
  std::vector<fs::path> folders{program_folder()};
  if (const fs::path library = library_folder(); !library.empty()) folders.push_back(library / "../bin");
  std::error_code ignored;
  for (const fs::path& folder : folders)
    if (fs::exists(folder / "tightloop-setup", ignored)) return "tightloop-setup";
  return "tools/setup";
}

}  // namespace tightloop
