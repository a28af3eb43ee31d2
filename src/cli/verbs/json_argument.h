#pragma once

#include <string>

namespace tightloop::cli {

/// `text`, which must be an object or a list of tools in JSON (`list`), or else is a usage error that names
/// its `source`.
std::string json_argument(const std::string& text, const std::string& source, bool list = false);

}  // namespace tightloop::cli
