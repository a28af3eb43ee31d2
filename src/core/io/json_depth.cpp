#include "core/io/json_depth.h"

namespace tightloop {

std::string_view shallow_json(std::string_view text) {
  constexpr int kMostLevels = 256;
  int levels = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++levels > kMostLevels) return {};
    } else if (c == ']' || c == '}') {
      --levels;
    }
  }
  return text;
}

}  // namespace tightloop
