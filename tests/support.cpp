#include "support.h"

#include <cstdlib>

namespace tightloop::testing {

fs::path shared_data() {
  if (const char* set = std::getenv("TIGHTLOOP_DATA")) return set;
  return fs::path(TIGHTLOOP_SOURCE_DIR).parent_path() / "shared" / "data";
}

}  // namespace tightloop::testing
