#pragma once

#include <string_view>

namespace tightloop::serve {

/// The files of src/serve/page, as they were when the program was built (cmake/pages.cmake). The style and
/// the script of a page are several files, one after another.
extern const std::string_view kChatHtml, kChatStyle, kChatScript;

}  // namespace tightloop::serve
