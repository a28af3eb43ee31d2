#pragma once

#include <filesystem>
#include <string>

namespace tightloop {

struct PluginState {
  bool loaded = false;
  std::filesystem::path path;  // where it was found; empty when it was not looked for or is not there
  std::string reason;          // why it is not loaded, a sentence
};

/// Loads libtightloop_cuda.so from $TIGHTLOOP_PLUGIN_DIR or from beside the program, once; later calls tell
/// what came of the first. Call it before anything asks torch about CUDA. Without a driver, or with
/// TIGHTLOOP_NO_CUDA=1, nothing is loaded and nothing is spent.
const PluginState& load_cuda_plugin();

/// The folder of the running program.
std::filesystem::path program_folder();
/// Where plug-ins are: $TIGHTLOOP_PLUGIN_DIR, or beside the program.
std::filesystem::path plugin_folder();

}  // namespace tightloop
