#pragma once

#include <string_view>

namespace tightloop::serve {

/// The page for a browser, as it was when the program was built (cmake/pages.cmake).
extern const std::string_view kChatPage;

}  // namespace tightloop::serve
