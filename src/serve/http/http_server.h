#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/call_parser.h"
#include "serve/http/http_call.h"

namespace tightloop::serve {

struct Connection;
class HttpServer;

/// A request and the way back to who asked. Everything but call() is for the server's thread alone.
class Exchange {
 public:
  enum class Lost { kGone, kSlow };

  Exchange(HttpServer& server, Connection& connection, HttpCall call);
  const HttpCall& call() const { return call_; }
  std::chrono::steady_clock::time_point began() const { return began_; }

  /// The whole answer.
  void reply(HttpReply reply);
  /// Or in pieces: a head (its body is not read), then any number of pieces, then the end.
  void begin(HttpReply head);
  void send(std::string_view piece);
  void finish();

  bool begun() const { return begun_; }
  /// Whether an answer can still be given: it is not finished, and the client is there.
  bool open() const { return connection_ != nullptr; }
  int status() const { return status_; }  // of the answer; 0: none yet, or its client is lost
  /// Headers of the answer besides its own.
  HttpHeaders extra_headers{};
  std::string model{};  // that is asked, for the log

  /// Called once where the client goes away, or does not read, before the answer is finished.
  std::function<void(Lost)> on_lost{};
  /// Called once, when no more can be said: after finish() or reply(), or after on_lost.
  std::function<void()> on_done{};

 private:
  friend class HttpServer;
  void end();
  void lose(Lost how);

  HttpServer& server_;
  Connection* connection_;
  const HttpCall call_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  bool begun_ = false, sized_ = false, reported_ = false;
  int status_ = 0;
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: one that is free
  CallLimits call{};
  size_t connections = 256;
  size_t unsent_bytes = size_t{1} << 20;  // of an answer in pieces, that its client has not taken yet
  std::chrono::milliseconds receive = std::chrono::seconds(30);  // for a request to arrive
  std::chrono::milliseconds idle = std::chrono::seconds(60);     // between requests
  std::chrono::milliseconds send = std::chrono::seconds(30);     // without a byte that is taken
};

/// An HTTP/1.1 server on one thread: connections cost a descriptor each, not a thread, so that slow clients
/// and long answers hold nobody up, and a client that goes away is noticed at once. Everything a client may
/// make large or slow is bounded.
class HttpServer {
 public:
  /// Called for each request, on the server's thread; it, or somebody later, answers.
  using Handler = std::function<void(const std::shared_ptr<Exchange>&)>;

  /// Listens. A usage error where the port cannot be had. `refused` is called before what cannot be read is
  /// answered.
  HttpServer(const HttpOptions& options, Handler handler, Handler refused);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  /// Serves until `tick`, which is asked several times a second, says false. Answers that are finished by
  /// then are still sent, for a second.
  void run(const std::function<bool()>& tick);
  /// From any thread: does this on the server's thread, soon.
  void post(std::function<void()> work);
  /// From now on connections are closed behind their answers.
  void close_after_answers() { closing_ = true; }
  size_t connections() const { return connections_.size(); }

 private:
  friend class Exchange;
  using Clock = std::chrono::steady_clock;

  void accept_new();
  bool make_room();
  void wait(std::chrono::milliseconds time);
  void do_posted();
  void receive(Connection& connection);
  void read_on(Connection& connection);
  void refuse(Connection& connection, int status, std::string_view why);
  void flush(Connection& connection);
  void answered(Connection& connection);
  void look_after(Connection& connection, Clock::time_point now);
  void drop(Connection& connection, Exchange::Lost how);
  void sweep();
  bool anything_unsent() const;

  const HttpOptions options_;
  const Handler handler_, refused_;
  int listener_ = -1, wake_ = -1, port_ = 0;
  bool closing_ = false;
  Clock::time_point no_accept_until_{};
  std::list<std::unique_ptr<Connection>> connections_;
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
};

}  // namespace tightloop::serve
