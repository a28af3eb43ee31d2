#include "serve/http/access.h"

#include <algorithm>

#include "support.h"

namespace tightloop {
namespace {

using namespace serve;

HttpCall call_with(const HttpHeaders& headers) { return {.method = "POST", .path = "/", .headers = headers}; }

int origin_status(const AccessRules& rules, const std::string& host, const std::string& origin = "") {
  HttpHeaders headers{{"host", host}};
  if (!origin.empty()) headers.emplace_back("origin", origin);
  return check_origin(call_with(headers), rules).status;
}

TEST(Access, LoopbackAddressesAreKnown) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "localhost", "::1", "[::1]"})
    EXPECT_TRUE(is_loopback(host));
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "127.evil.example", "localhost.evil.example", ""})
    EXPECT_FALSE(is_loopback(host)) << host;
}

TEST(Access, OtherNamesOfThisMachineAreRefusedWithoutAKey) {
  const AccessRules rules;
  for (const char* host : {"127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000"})
    EXPECT_EQ(origin_status(rules, host), 0) << host;
  for (const char* host : {"evil.example", "evil.example:8000", "127.0.0.1.evil.example",
                           "127.0.0.1:", "localhost:80:80", "[::1", "", "localhost:8000.evil.example"})
    EXPECT_EQ(origin_status(rules, host), 421) << host;
  EXPECT_EQ(origin_status({.host = "10.0.0.7", .key = "k"}, "my.server.example"), 0);
}

TEST(Access, PagesOfOtherSitesAreRefused) {
  const AccessRules rules, open{.cors = "https://chat.example"};
  EXPECT_EQ(origin_status(rules, "localhost:8000", "http://localhost:8000"), 0);
  EXPECT_EQ(origin_status(rules, "localhost:8000", "https://evil.example"), 403);
  EXPECT_EQ(origin_status(rules, "localhost:8000", "http://localhost:9000"), 403);
  EXPECT_EQ(origin_status(rules, "localhost:8000", "null"), 403);
  EXPECT_EQ(origin_status(open, "localhost:8000", "https://chat.example"), 0);
  EXPECT_EQ(origin_status(open, "localhost:8000", "https://chat.example.evil"), 403);
  EXPECT_EQ(origin_status({.host = "0.0.0.0", .key = "k"}, "a.example", "https://evil.example"), 403);
  EXPECT_TRUE(cors_headers(call_with({{"origin", "https://evil.example"}}), open).empty());
  EXPECT_EQ(cors_headers(call_with({{"origin", "https://chat.example"}}), open).front().second,
            "https://chat.example");
  EXPECT_TRUE(cors_headers(call_with({{"origin", "https://chat.example"}}), rules).empty());
}

TEST(Access, PagesOfTheOriginThatIsNamedMayAskAsClientsDo) {
  const AccessRules open{.cors = "https://Chat.example"};
  const auto headers = cors_headers(call_with({{"origin", "https://chat.example"},
                                               {"access-control-request-headers", "x-stainless-os,x-b"}}),
                                    open);
  const auto value = [&](std::string_view name) {
    const auto found = std::ranges::find(headers, name, &std::pair<std::string, std::string>::first);
    return found == headers.end() ? "" : found->second;
  };
  EXPECT_EQ(value("Access-Control-Allow-Origin"), "https://chat.example") << "as the browser spells it";
  EXPECT_EQ(value("Access-Control-Allow-Headers"), "x-stainless-os,x-b");
  for (const char* origin :
       {"https://chat.example", "http://localhost:3000", "http://[::1]:8000", "chrome-extension://abc"})
    EXPECT_TRUE(is_origin(origin)) << origin;
  for (const char* other :
       {"*", "null", "chat.example", "https://", "://a", "https://chat.example/", "https://chat.example/app",
        "https://*.example", "https://a, https://b", "https://a:b", "https://me@a"})
    EXPECT_FALSE(is_origin(other)) << other;
}

TEST(Access, KeysAreComparedWhole) {
  EXPECT_TRUE(same_secret("secret", "secret"));
  for (const char* wrong : {"", "s", "secre", "secret1", "secretsecret", "Secret"})
    EXPECT_FALSE(same_secret(wrong, "secret")) << wrong;
  const AccessRules rules{.key = "secret"};
  EXPECT_TRUE(has_key(call_with({{"authorization", "Bearer secret"}}), rules));
  EXPECT_TRUE(has_key(call_with({{"authorization", "bearer secret"}}), rules));
  for (const char* wrong :
       {"secret", "Basic secret", "Bearer", "Bearer ", "Bearer  secret", "Bearer secret "})
    EXPECT_FALSE(has_key(call_with({{"authorization", wrong}}), rules)) << wrong;
  EXPECT_FALSE(has_key(call_with({}), rules));
  EXPECT_TRUE(has_key(call_with({}), AccessRules{}));
}

}  // namespace
}  // namespace tightloop
