#pragma once

#include <string_view>

namespace tightloop::cli {

/// The files of src/cli/page, as they were when the program was built (cmake/pages.cmake).
extern const std::string_view kPageHtml, kPageStyle, kPageScript;

}  // namespace tightloop::cli
