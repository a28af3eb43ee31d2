#pragma once

#include <filesystem>
#include <string>

namespace tightloop {

struct PluginState {
  bool loaded = false;
  std::filesystem::path path;  // where it was found; empty when it was not looked for or is not there
  std::string reason;          // why it is not loaded, a sentence
};

/// Loads libtightloop_cuda.so from where plugin_path() says, once; later calls tell what came of the first.
/// Call it before anything asks torch about CUDA. Without a driver, or with TIGHTLOOP_NO_CUDA=1, nothing is
/// loaded and nothing is spent.
const PluginState& load_cuda_plugin();

/// The folder of the running program.
std::filesystem::path program_folder();
/// Where a plug-in is: in $TIGHTLOOP_PLUGIN_DIR; without that, beside the program, or where it was installed:
/// lib/tightloop, next to the program's bin/ or to this library.
std::filesystem::path plugin_path(const std::string& name);
/// The command that brings torch and Arrow: tightloop-setup of an installed package, tools/setup of a
/// checkout.
std::string setup_command();

}  // namespace tightloop
