#include "core/io/local_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace tightloop {

namespace {

using namespace std::chrono_literals;

constexpr auto kDrainTime = 1s;  // to close a connection after its answer
constexpr int kLookMs = 200;

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

std::string_view trimmed(std::string_view text) {
  const size_t from = text.find_first_not_of(" \t"), to = text.find_last_not_of(" \t\r");
  return from == text.npos || to == text.npos ? std::string_view() : text.substr(from, to - from + 1);
}

/// "127.0.0.1", "localhost:8080".
bool names_this_machine(std::string_view host) {
  const size_t colon = host.find(':');
  const std::string_view name = host.substr(0, colon), port = host.substr(std::min(colon, host.size()));
  return (name == "127.0.0.1" || name == "localhost") && port != ":" &&
         port.find_first_not_of("0123456789", port.empty() ? 0 : 1) == port.npos;
}

/// Nothing of it may be kept, guessed at, framed or read by other sites.
std::string response(std::string_view status, std::string_view type, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: "
      "no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n"
      "Cross-Origin-Resource-Policy: same-origin\r\n{}\r\n{}",
      status, type, body.size(), status.starts_with("405") ? "Allow: GET\r\n" : "", body);
}

std::string refusal(std::string_view status) {
  return response(status, "text/plain; charset=utf-8", fmt::format("{}\n", status));
}

}  // namespace

HttpRequest read_request(std::string_view head) {
  const std::string_view first = trimmed(head.substr(0, head.find('\n')));
  const size_t space = first.find(' '), last = first.rfind(' ');
  if (space == first.npos || last == space || !first.substr(last + 1).starts_with("HTTP/1."))
    return {.refusal = "400 Bad Request"};
  const std::string_view target = first.substr(space + 1, last - space - 1);
  std::vector<std::string> hosts;
  for (size_t at = head.find('\n'); at != head.npos && at + 1 < head.size();) {
    const size_t end = head.find('\n', at + 1);
    const std::string_view line = head.substr(at + 1, end == head.npos ? head.npos : end - at - 1);
    const size_t colon = line.find(':');
    if (colon != line.npos && lower_case(line.substr(0, colon)) == "host")
      hosts.push_back(lower_case(trimmed(line.substr(colon + 1))));
    at = end;
  }
  if (hosts.size() != 1) return {.refusal = "400 Bad Request"};
  if (!names_this_machine(hosts.front())) return {.refusal = "421 Misdirected Request"};
  if (first.substr(0, space) != "GET") return {.refusal = "405 Method Not Allowed"};
  const size_t mark = std::min(target.find('?'), target.size());
  return {.path = std::string(target.substr(0, mark)),
          .query = std::string(target.substr(std::min(mark + 1, target.size())))};
}

LocalServer::LocalServer(int port, std::chrono::milliseconds patience) : patience_(patience) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (listener_ < 0 || ::bind(listener_, any, size) != 0 || ::listen(listener_, 16) != 0 ||
      ::getsockname(listener_, any, &size) != 0) {
    const std::string reason = std::strerror(errno);
    if (listener_ >= 0) ::close(listener_);
    throw usage_error("port {} of 127.0.0.1 cannot be used: {}. Give another one, or 0 for any that is free.",
                      port, reason);
  }
  port_ = ntohs(address.sin_port);
}

LocalServer::~LocalServer() {
  for (const Connection& connection : connections_) ::close(connection.descriptor);
  ::close(listener_);
}

std::string LocalServer::url() const { return fmt::format("http://127.0.0.1:{}/", port_); }

void LocalServer::accept_new() {
  while (connections_.size() < kMostConnections) {
    const int descriptor = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor < 0) return;
    connections_.push_back({.descriptor = descriptor, .until = Clock::now() + patience_});
  }
}

void LocalServer::receive(Connection& connection, const Answers& answers) {
  std::array<char, 4096> bytes;
  const auto got = ::recv(connection.descriptor, bytes.data(), bytes.size(), 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) connection.done = true;
  if (got <= 0 || connection.answered) return;  // what comes after the head is thrown away
  connection.in.append(bytes.data(), static_cast<size_t>(got));
  const size_t end = connection.in.find("\r\n\r\n");
  if (end == std::string::npos && connection.in.size() <= kMostHead) return;
  connection.answered = true;
  if (end == std::string::npos || end > kMostHead) {
    connection.out = refusal("431 Request Header Fields Too Large");
    return;
  }
  const HttpRequest request = read_request(std::string_view(connection.in).substr(0, end));
  if (!request.refusal.empty()) {
    connection.out = refusal(request.refusal);
    return;
  }
  const auto answer = answers(request);
  connection.out = !answer                ? refusal("404 Not Found")
                   : answer->type.empty() ? response("204 No Content", "text/plain", "")
                                          : response("200 OK", answer->type, answer->body);
  connection.until = Clock::now() + patience_;  // what the answer took is not the client's
}

void LocalServer::send(Connection& connection) {
  const auto sent = ::send(connection.descriptor, connection.out.data() + connection.written,
                           connection.out.size() - connection.written, MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) connection.done = true;
  // A slow reader is one that goes on reading.
  if (sent > 0) connection.written += static_cast<size_t>(sent), connection.until = Clock::now() + patience_;
  if (connection.written < connection.out.size()) return;
  // Closing at once while the client still sends would take the answer from it.
  ::shutdown(connection.descriptor, SHUT_WR);
  connection.draining = true;
  connection.until = Clock::now() + kDrainTime;
}

void LocalServer::serve(const Answers& answers, const std::function<bool()>& stop) {
  while (!stop()) {
    std::vector<pollfd> waited;
    for (const Connection& connection : connections_) {
      const bool writes = connection.answered && !connection.draining;
      waited.push_back({connection.descriptor, static_cast<short>(writes ? POLLOUT : POLLIN), 0});
    }
    const bool room = connections_.size() < kMostConnections;
    waited.push_back({listener_, static_cast<short>(room ? POLLIN : 0), 0});
    if (::poll(waited.data(), waited.size(), kLookMs) < 0 && errno != EINTR)
      throw Error(ExitCode::kFailure, fmt::format("serving failed: {}.", std::strerror(errno)));
    for (size_t i = 0; i < connections_.size(); ++i) {
      Connection& connection = connections_[i];
      if (waited[i].revents & POLLOUT)
        send(connection);
      else if (waited[i].revents)
        receive(connection, answers);
    }
    const auto now = Clock::now();
    std::erase_if(connections_, [&](const Connection& connection) {
      const bool gone = connection.done || now > connection.until;
      if (gone) ::close(connection.descriptor);
      return gone;
    });
    if (waited.back().revents) accept_new();
  }
}

}  // namespace tightloop
