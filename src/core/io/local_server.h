#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tightloop {

/// What a path of a LocalServer has. Without a type: nothing new (204 No Content).
struct HttpAnswer {
  std::string type{}, body{};
};

/// What is said of the head of a request, from "GET / HTTP/1.1" to the empty line: the path that is asked
/// for and what comes after its '?', or why nothing is given (a status such as "405 Method Not Allowed"). A
/// Host header that names neither 127.0.0.1 nor localhost, with any port (it may be forwarded), comes from a
/// page of another site whose name was made to lead here (DNS rebinding).
struct HttpRequest {
  std::string path{}, query{}, refusal{};
};
HttpRequest read_request(std::string_view head);

/// A tiny HTTP/1.1 server for a browser on the same machine: 127.0.0.1 only, GET only, one answer a
/// connection. Requests are bounded in size, connections in number and time, so that nobody holds it up.
class LocalServer {
 public:
  static constexpr size_t kMostHead = 8192;
  static constexpr size_t kMostConnections = 32;

  /// Port 0: a free one. A usage error where it cannot be had. `patience`: for a client that sends or takes
  /// nothing more.
  explicit LocalServer(int port, std::chrono::milliseconds patience = std::chrono::seconds(10));
  ~LocalServer();
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  int port() const { return port_; }
  std::string url() const;

  /// Gives what a path has; nothing: it is not there.
  using Answers = std::function<std::optional<HttpAnswer>(const HttpRequest& request)>;
  /// Answers requests until `stop`, which is asked a few times a second.
  void serve(const Answers& answers, const std::function<bool()>& stop);

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    int descriptor = -1;
    std::string in{}, out{};  // read so far; to be written
    size_t written = 0;
    bool answered = false, draining = false, done = false;
    Clock::time_point until{};
  };
  void accept_new();
  void receive(Connection& connection, const Answers& answers);
  void send(Connection& connection);

  const std::chrono::milliseconds patience_;
  int listener_ = -1, port_ = 0;
  std::vector<Connection> connections_;
};

}  // namespace tightloop
