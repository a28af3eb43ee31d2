#include "core/io/local_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "support.h"

namespace tightloop::testing {
namespace {

constexpr const char* kNl = "\r\n";

std::string status_of(const std::string& head) {
  const HttpRequest request = read_request(head);
  return request.refusal.empty() ? request.path : request.refusal.substr(0, 3);
}

TEST(LocalServer, ReadsRequests) {
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: 127.0.0.1:8080"), "/");
  EXPECT_EQ(status_of("GET /data.json?1 HTTP/1.1\r\nAccept: *\r\nhOST:\tLocalhost:8080 "), "/data.json");
  EXPECT_EQ(status_of("GET /a b HTTP/1.1\r\nHost: localhost:8080"), "/a b");
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: localhost:8080"), "405");
  EXPECT_EQ(status_of("HEAD / HTTP/1.1\r\nHost: localhost:8080"), "405");
  for (const char* wrong :
       {"", "GET", "GET /", "GET / HTTP/2", "GET / FTP/1.1\r\nHost: localhost:8080", "\r\n\r\n",
        "GET / HTTP/1.1", "GET / HTTP/1.1\r\nHost: localhost:8080\r\nHost: localhost:8080"})
    EXPECT_EQ(status_of(wrong), "400") << wrong;
}

TEST(LocalServer, RefusesOtherHosts) {
  for (const char* host : {"evil.example", "evil.example:8080", "127.0.0.1.evil.example", "127.0.0.1:",
                           "127.0.0.1:8080.evil.example", "localhost:80:80", "[::1]:8080", ":8080", ""})
    EXPECT_EQ(status_of(std::string("GET / HTTP/1.1\r\nHost: ") + host), "421") << host;
  // Through ssh -L the port is another one.
  for (const char* host : {"127.0.0.1", "127.0.0.1:80", "localhost:8081", "LOCALHOST"})
    EXPECT_EQ(status_of(std::string("GET / HTTP/1.1\r\nHost: ") + host), "/") << host;
}

TEST(LocalServer, WhatComesAfterTheQuestionMarkIsTheQuery) {
  EXPECT_EQ(read_request("GET /data.json?1f?2 HTTP/1.1\r\nHost: localhost").query, "1f?2");
  EXPECT_EQ(read_request("GET /data.json? HTTP/1.1\r\nHost: localhost").query, "");
  EXPECT_EQ(read_request("GET /data.json HTTP/1.1\r\nHost: localhost").query, "");
}

/// A server with two pages, in a thread.
class ServedPages : public ::testing::Test {
 protected:
  ~ServedPages() override {
    stop_ = true;
    thread_.join();
  }

  int connected() const {
    const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server_.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return descriptor;
  }
  static void say(int descriptor, const std::string& text) {
    EXPECT_EQ(::send(descriptor, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  static std::string answer(int descriptor) {
    std::string text;
    char bytes[4096];
    for (ssize_t got; (got = ::recv(descriptor, bytes, sizeof bytes, 0)) > 0;)
      text.append(bytes, static_cast<size_t>(got));
    ::close(descriptor);
    return text;
  }
  std::string host() const { return "Host: 127.0.0.1:" + std::to_string(server_.port()) + kNl; }
  std::string get(const std::string& path) const {
    const int descriptor = connected();
    say(descriptor, "GET " + path + " HTTP/1.1" + kNl + host() + kNl);
    return answer(descriptor);
  }

  LocalServer server_{0, std::chrono::seconds(2)};
  const std::string large_ = std::string(30'000'000, 'x');
  std::atomic<bool> stop_ = false;
  std::thread thread_{[this] {
    const auto pages = [this](const HttpRequest& request) -> std::optional<HttpAnswer> {
      if (request.path == "/") return HttpAnswer{"text/plain", "hello"};
      if (request.path == "/large") return HttpAnswer{"text/plain", large_};
      if (request.path == "/old") return HttpAnswer{};
      return {};
    };
    server_.serve(pages, [this] { return stop_.load(); });
  }};
};

TEST_F(ServedPages, AnswersWithLengthAndRules) {
  const std::string text = get("/");
  EXPECT_TRUE(text.starts_with("HTTP/1.1 200 OK\r\n")) << text;
  EXPECT_TRUE(text.ends_with("\r\n\r\nhello")) << text;
  for (const char* header : {"Content-Length: 5\r\n", "Content-Type: text/plain\r\n", "nosniff", "no-store",
                             "Cross-Origin-Resource-Policy: same-origin", "X-Frame-Options: DENY"})
    EXPECT_NE(text.find(header), std::string::npos) << header;
  EXPECT_TRUE(get("/nothing").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(get("/old").starts_with("HTTP/1.1 204 "));
  EXPECT_TRUE(get("/large").ends_with("\r\n\r\n" + large_));
}

TEST_F(ServedPages, ASlowReaderGetsAllOfIt) {
  const int descriptor = connected();
  say(descriptor, std::string("GET /large HTTP/1.1") + kNl + host() + kNl);
  const auto start = std::chrono::steady_clock::now();
  size_t got = 0;
  std::vector<char> bytes(2'000'000);
  for (ssize_t more; (more = ::recv(descriptor, bytes.data(), bytes.size(), MSG_WAITALL)) > 0;) {
    got += static_cast<size_t>(more);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // 20 MB take longer than its patience
  }
  ::close(descriptor);
  EXPECT_GT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  EXPECT_GT(got, large_.size());
}

TEST_F(ServedPages, NoOneHoldsItUp) {
  std::vector<int> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(connected());
  say(silent[1], "GET / HT");
  EXPECT_TRUE(get("/").starts_with("HTTP/1.1 200 OK"));
  say(silent[1], std::string("TP/1.1") + kNl + host() + kNl);
  EXPECT_TRUE(answer(silent[1]).starts_with("HTTP/1.1 200 OK")) << "in pieces is fine";
  for (const int i : {0, 2, 3, 4}) ::close(silent[static_cast<size_t>(i)]);
}

TEST_F(ServedPages, AReaderThatLeavesIsNoTrouble) {
  for (int i = 0; i < 3; ++i) {
    const int descriptor = connected();
    say(descriptor, std::string("GET /large HTTP/1.1") + kNl + host() + kNl);
    ::close(descriptor);
  }
  EXPECT_TRUE(get("/").starts_with("HTTP/1.1 200 OK"));
}

TEST_F(ServedPages, LongRequestsAreRefused) {
  const int descriptor = connected();
  say(descriptor,
      std::string("GET / HTTP/1.1") + kNl + host() + "X: " + std::string(100'000, 'x') + kNl + kNl);
  EXPECT_TRUE(answer(descriptor).starts_with("HTTP/1.1 431 "));
}

TEST(LocalServer, APortThatIsTakenIsASentence) {
  const LocalServer server(0);
  EXPECT_GT(server.port(), 0);
  EXPECT_EQ(server.url(), "http://127.0.0.1:" + std::to_string(server.port()) + "/");
  const auto message = error_of(ExitCode::kUsage, [&] { LocalServer again(server.port()); });
  EXPECT_NE(message.find("cannot be used"), std::string::npos) << message;
}

}  // namespace
}  // namespace tightloop::testing
