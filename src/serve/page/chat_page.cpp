#include "serve/page/chat_page.h"

#include <fmt/format.h>

#include "serve/page/fill_page.h"
#include "serve/page/page_files.h"

namespace tightloop::serve {

ChatPage chat_page() {
  const std::string nonce = page_nonce();
  // Trusted types: the browser refuses any text that a script would have read as HTML.
  const std::string policy = fmt::format(
      "default-src 'none'; base-uri 'none'; form-action 'none'; connect-src 'self'; img-src data:; "
      "style-src 'nonce-{0}'; script-src 'nonce-{0}'; require-trusted-types-for 'script'; trusted-types "
      "'none'",
      nonce);
  return {fill_page(kChatHtml, {{"nonce", nonce},
                                {"policy", policy},
                                {"style", std::string(kChatStyle)},
                                {"script", std::string(kChatScript)}}),
          policy + "; frame-ancestors 'none'"};  // which counts in a header alone
}

}  // namespace tightloop::serve
