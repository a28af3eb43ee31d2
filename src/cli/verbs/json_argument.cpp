#include "cli/verbs/json_argument.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io/json_depth.h"

namespace tightloop::cli {

std::string json_argument(const std::string& text, const std::string& source, bool list) {
  const auto json = nlohmann::json::parse(shallow_json(text), nullptr, /*allow_exceptions=*/false);
  if (list ? json.is_array() : json.is_object()) return text;
  throw usage_error("{} is not {} in JSON.", source, list ? "a list of tools" : "an object");
}

}  // namespace tightloop::cli
