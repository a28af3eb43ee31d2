#include "serve/http/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "serve/http/connection.h"

namespace tightloop::serve {

namespace {

using namespace std::chrono_literals;

constexpr auto kLook = 100ms, kDrain = 1000ms, kNoDescriptors = 200ms;
/// For who comes when all connections are taken.
const std::string& full_house() {
  static const std::string kText = [] {
    const HttpReply reply =
        error_reply(503, "too many connections are open; try again in a moment.", "server_error");
    return fmt::format(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nRetry-After: 1\r\nConnection: "
        "close\r\n\r\n{}",
        status_line(reply.status), reply.type, reply.body.size(), reply.body);
  }();
  return kText;
}

int listening_socket(const std::string& host, int port, std::string& why) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC, hints.ai_socktype = SOCK_STREAM, hints.ai_flags = AI_PASSIVE;
  const std::string service = std::to_string(port);
  if (const int failed = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &found); failed != 0) {
    why = ::gai_strerror(failed);
    return -1;
  }
  int listener = -1;
  for (const addrinfo* at = found; at && listener < 0; at = at->ai_next) {
    listener = ::socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int on = 1;
    ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (listener >= 0 && ::bind(listener, at->ai_addr, at->ai_addrlen) == 0 && ::listen(listener, 128) == 0)
      break;
    why = std::strerror(errno);
    if (listener >= 0) ::close(listener);
    listener = -1;
  }
  ::freeaddrinfo(found);
  return listener;
}

}  // namespace

HttpServer::HttpServer(const HttpOptions& options, Handler handler, Handler refused)
    : options_(options), handler_(std::move(handler)), refused_(std::move(refused)) {
  std::string why;
  listener_ = listening_socket(options.host, options.port, why);
  if (listener_ < 0)
    throw usage_error(
        "port {} of {} cannot be used: {}. Give another one (--port), or 0 for any that is free.",
        options.port, options.host, why);
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                              : reinterpret_cast<sockaddr_in&>(address).sin_port);
  wake_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_ < 0) throw Error(ExitCode::kFailure, fmt::format("eventfd failed: {}.", std::strerror(errno)));
}

HttpServer::~HttpServer() {
  for (const auto& connection : connections_) {
    if (connection->exchange) connection->exchange->connection_ = nullptr;
    ::close(connection->descriptor);
  }
  ::close(listener_);
  ::close(wake_);
}

void HttpServer::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
  }
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
}

void HttpServer::do_posted() {
  uint64_t count;
  [[maybe_unused]] const auto got = ::read(wake_, &count, sizeof count);
  std::vector<std::function<void()>> work;
  {
    const std::lock_guard lock(mutex_);
    work.swap(posted_);
  }
  for (const auto& one : work) one();
}

void HttpServer::run(const std::function<bool()>& tick) {
  while (tick()) wait(kLook);
  const auto until = Clock::now() + kDrain;
  while (anything_unsent() && Clock::now() < until) wait(kLook);
}

bool HttpServer::anything_unsent() const {
  return std::ranges::any_of(connections_, [](const auto& one) { return one->unsent() > 0; });
}

/// One round: waits until something can be read or written, and does it.
void HttpServer::wait(std::chrono::milliseconds time) {
  std::vector<pollfd> waited{
      {wake_, POLLIN, 0}, {listener_, static_cast<short>(Clock::now() < no_accept_until_ ? 0 : POLLIN), 0}};
  std::vector<Connection*> polled;
  for (const auto& connection : connections_) {
    // While a request is answered nothing more is read: what the client has in store stays with it.
    const bool reads = !connection->exchange && (!connection->last || connection->draining);
    const bool writes = connection->unsent() > 0;
    waited.push_back({connection->descriptor,
                      static_cast<short>(POLLRDHUP | (reads ? POLLIN : 0) | (writes ? POLLOUT : 0)), 0});
    polled.push_back(connection.get());
  }
  if (::poll(waited.data(), waited.size(), static_cast<int>(time.count())) < 0 && errno != EINTR)
    throw Error(ExitCode::kFailure, fmt::format("serving failed: {}.", std::strerror(errno)));
  if (waited[0].revents) do_posted();
  const auto now = Clock::now();
  for (size_t i = 0; i < polled.size(); ++i) {
    Connection& connection = *polled[i];
    const short seen = waited[i + 2].revents;
    if (!connection.dead && (seen & POLLOUT)) flush(connection);
    if (!connection.dead && (seen & POLLIN)) receive(connection);
    // It has closed its side: nobody reads the answer. What it sent before that has been read above.
    if (!connection.dead && (seen & (POLLERR | POLLHUP | POLLNVAL | POLLRDHUP)) && !(seen & POLLIN))
      drop(connection, Exchange::Lost::kGone);
    if (!connection.dead) look_after(connection, now);
  }
  sweep();
  if (waited[1].revents) accept_new();
}

void HttpServer::sweep() {
  std::erase_if(connections_, [](const auto& connection) {
    if (connection->dead) ::close(connection->descriptor);
    return connection->dead;
  });
}

/// A place for one more connection, where need be that of one that only waits for a next request.
bool HttpServer::make_room() {
  if (connections_.size() < options_.connections) return true;
  for (const auto& connection : connections_) {
    const bool busy = connection->exchange || connection->unsent() > 0 || connection->parser.begun();
    if (busy && !connection->draining) continue;
    drop(*connection, Exchange::Lost::kGone);
    sweep();
    return true;
  }
  return false;
}

void HttpServer::accept_new() {
  for (;;) {
    const int descriptor = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        no_accept_until_ = Clock::now() + kNoDescriptors;
      return;
    }
    if (!make_room()) {
      [[maybe_unused]] const auto sent =
          ::send(descriptor, full_house().data(), full_house().size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      ::shutdown(descriptor, SHUT_WR);
      ::close(descriptor);
      continue;
    }
    const int on = 1;
    ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connections_.push_back(std::make_unique<Connection>(descriptor, options_.call));
    connections_.back()->until = Clock::now() + options_.idle;
  }
}

void HttpServer::receive(Connection& connection) {
  if (connection.exchange) return;
  std::array<char, 1 << 16> bytes;
  const auto got = ::recv(connection.descriptor, bytes.data(), bytes.size(), 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
    return drop(connection, Exchange::Lost::kGone);
  if (got < 0 || connection.draining) return;  // what comes behind the last answer is thrown away
  const bool begins = !connection.parser.begun();
  connection.parser.add({bytes.data(), static_cast<size_t>(got)});
  if (begins) connection.until = Clock::now() + options_.receive;
  read_on(connection);
}

/// What the parser has found.
void HttpServer::read_on(Connection& connection) {
  if (connection.parser.take_expects_continue() && connection.parser.state() == CallParser::State::kBody) {
    connection.out += "HTTP/1.1 100 Continue\r\n\r\n";
    flush(connection);
    if (connection.dead) return;
  }
  if (connection.parser.state() == CallParser::State::kRefused)
    return refuse(connection, connection.parser.refusal().status, connection.parser.refusal().why);
  if (connection.parser.state() != CallParser::State::kWhole) return;
  const auto exchange = std::make_shared<Exchange>(*this, connection, connection.parser.take());
  connection.exchange = exchange;
  handler_(exchange);
}

void HttpServer::refuse(Connection& connection, int status, std::string_view why) {
  connection.last = true;
  const auto exchange = std::make_shared<Exchange>(*this, connection, HttpCall{});
  connection.exchange = exchange;
  refused_(exchange);
  exchange->reply(error_reply(status, why));
}

void HttpServer::flush(Connection& connection) {
  while (connection.unsent() > 0) {
    const auto sent = ::send(connection.descriptor, connection.out.data() + connection.sent,
                             connection.unsent(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) break;
    if (sent <= 0) return drop(connection, Exchange::Lost::kGone);
    connection.sent += static_cast<size_t>(sent);
    connection.until = Clock::now() + options_.send;  // a slow reader is one that goes on reading
  }
  if (connection.unsent() > 0) {
    if (connection.sent > connection.unsent()) connection.out.erase(0, std::exchange(connection.sent, 0));
    return;
  }
  connection.out.clear(), connection.sent = 0;
  if (!connection.last || connection.exchange || connection.draining) return;
  // Closing at once while the client still sends would take the answer from it.
  ::shutdown(connection.descriptor, SHUT_WR);
  connection.draining = true;
  connection.until = Clock::now() + kDrain;
}

/// An answer is finished: it is sent, and the next request, which may be here already, is read.
void HttpServer::answered(Connection& connection) {
  connection.until = Clock::now() + options_.send;
  flush(connection);
  if (connection.dead || connection.last) return;
  if (connection.unsent() == 0) connection.until = Clock::now() + options_.idle;
  if (!connection.parser.begun()) return;
  // Not from here: a client that sends many small requests at once would nest the calls.
  post([this, wanted = &connection] {
    const auto found = std::ranges::find(connections_, wanted, [](const auto& one) { return one.get(); });
    if (found == connections_.end() || wanted->dead || wanted->exchange || wanted->last) return;
    wanted->until = Clock::now() + options_.receive;
    wanted->parser.next();
    read_on(*wanted);
  });
}

/// Deadlines.
void HttpServer::look_after(Connection& connection, Clock::time_point now) {
  if (connection.unsent() == 0 && connection.exchange) {
    connection.until = now + options_.send;  // who is waited for is not the client
    return;
  }
  if (now <= connection.until) return;
  const bool reads = connection.unsent() == 0 && !connection.draining && connection.parser.begun();
  if (!reads) return drop(connection, Exchange::Lost::kSlow);
  refuse(connection, 408, "the request took too long to arrive.");
}

void HttpServer::drop(Connection& connection, Exchange::Lost how) {
  connection.dead = true;  // closed by sweep()
  if (const auto exchange = std::move(connection.exchange)) exchange->lose(how);
}

}  // namespace tightloop::serve
