// The page of tightloop serve: what is in it, and that it loads nothing.
#include "serve/page/chat_page.h"

#include "core/files.h"
#include "support.h"

namespace tightloop::serve {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(ChatPage, HasTheFilesOfTheTree) {
  const auto page = chat_page();
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(testing::source_folder() / "src/serve/page")) {
    const auto kind = entry.path().extension();
    if (kind != ".js" && kind != ".css") continue;
    EXPECT_TRUE(has(page.html, read_file(entry.path()))) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 10u);
  EXPECT_LT(page.html.size(), 120u << 10);
}

TEST(ChatPage, LoadsNothing) {
  const auto page = chat_page();
  for (const char* outside : {"https://cdn", "//cdn", "@import", "src=\"", "rel=\"stylesheet\"", "url("})
    EXPECT_FALSE(has(page.html, outside)) << outside;
  EXPECT_TRUE(has(page.policy, "default-src 'none'")) << page.policy;
  EXPECT_TRUE(has(page.policy, "connect-src 'self'")) << page.policy;
  EXPECT_FALSE(has(page.policy, "unsafe")) << page.policy;
  const auto nonce = page.policy.substr(page.policy.find("'nonce-") + 7, 32);
  EXPECT_TRUE(has(page.html, "<script nonce=\"" + nonce + "\">"));
  EXPECT_FALSE(has(chat_page().html, nonce)) << "another one each time";
}

}  // namespace
}  // namespace tightloop::serve
