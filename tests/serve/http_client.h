#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "support.h"

namespace tightloop::testing {

/// A connection to a server on this machine, byte by byte.
class HttpClient {
 public:
  explicit HttpClient(int port, int receive_buffer = 0) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET, address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~HttpClient() { close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  bool send(const std::string& bytes) {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  /// Reads until what was received holds `part`, or the server closes, or nothing comes for some seconds.
  const std::string& read_until(const std::string& part, int seconds = 60) {
    while (got_.find(part) == std::string::npos && read_some(seconds)) {
    }
    return got_;
  }
  const std::string& read_to_end(int seconds = 60) {
    while (read_some(seconds)) {
    }
    return got_;
  }
  /// All that has come, and what comes in so many milliseconds.
  const std::string& read_some_within(int ms) {
    pollfd waited{socket_, POLLIN, 0};
    if (::poll(&waited, 1, ms) > 0) read_some(1);
    return got_;
  }

 private:
  bool read_some(int seconds) {
    pollfd waited{socket_, POLLIN, 0};
    if (::poll(&waited, 1, seconds * 1000) <= 0) return false;
    char bytes[65536];
    const auto size = ::recv(socket_, bytes, sizeof bytes, 0);
    if (size > 0) got_.append(bytes, static_cast<size_t>(size));
    return size > 0;
  }

  int socket_ = -1;
  std::string got_;
};

struct HttpAnswered {
  int status = 0;
  std::string head, body;
  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
};

/// What came back; chunks are joined.
inline HttpAnswered parsed_answer(const std::string& bytes) {
  HttpAnswered answer;
  const size_t end = bytes.find("\r\n\r\n");
  if (end == std::string::npos) return answer;
  answer.head = bytes.substr(0, end);
  answer.status = std::atoi(bytes.substr(9, 3).c_str());
  std::string rest = bytes.substr(end + 4);
  if (answer.head.find("Transfer-Encoding: chunked") == std::string::npos) {
    answer.body = rest;
    return answer;
  }
  while (!rest.empty()) {
    const size_t line = rest.find("\r\n");
    const size_t size = std::strtoul(rest.c_str(), nullptr, 16);
    if (line == std::string::npos || size == 0) break;
    answer.body += rest.substr(line + 2, size);
    rest.erase(0, std::min(rest.size(), line + 2 + size + 2));
  }
  return answer;
}

inline std::string http_request(const std::string& method, const std::string& path,
                                const std::string& body = "", const std::string& headers = "") {
  return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers +
         (body.empty() ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n") + "\r\n" + body;
}

/// One request, one answer.
inline HttpAnswered ask(int port, const std::string& method, const std::string& path,
                        const std::string& body = "", const std::string& headers = "") {
  HttpClient client(port);
  client.send(http_request(method, path, body, headers));
  return parsed_answer(client.read_to_end());
}

/// The objects of a stream; "[DONE]" becomes the string "DONE".
inline std::vector<nlohmann::json> stream_objects(const std::string& body) {
  std::vector<nlohmann::json> objects;
  for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const size_t end = body.find("\n\n", at);
    const std::string text = body.substr(at + 6, end - at - 6);
    objects.push_back(text == "[DONE]" ? nlohmann::json("DONE")
                                       : nlohmann::json::parse(text, nullptr, false));
    at = end;
  }
  return objects;
}

}  // namespace tightloop::testing
