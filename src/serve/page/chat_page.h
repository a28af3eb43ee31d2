#pragma once

#include <string>

namespace tightloop::serve {

/// The page that is given to a browser, another one each time.
struct ChatPage {
  std::string html;
  std::string
      policy;  // what Content-Security-Policy has to say: nothing is loaded, and only this server is asked
};
ChatPage chat_page();

}  // namespace tightloop::serve
