#include "support.h"

#include <cstdlib>

namespace tightloop::testing {

fs::path source_folder() { return TIGHTLOOP_SOURCE_DIR; }

fs::path python() { return source_folder() / ".deps/python/bin/python"; }

int run_python(const std::string& script, const fs::path& argument) {
  const std::string command = "'" + python().string() + "' '" + (source_folder() / script).string() + "' '";
  return std::system((command + argument.string() + "'").c_str());
}

fs::path shared_data() {
  if (const char* set = std::getenv("TIGHTLOOP_DATA")) return set;
  return source_folder().parent_path() / "shared" / "data";
}

}  // namespace tightloop::testing
