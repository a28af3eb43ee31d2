#include <fmt/format.h>

#include "serve/http/connection.h"
#include "serve/http/http_server.h"

namespace tightloop::serve {

namespace {

/// Nothing of it may be kept, guessed at or framed by other sites.
std::string head_of(const HttpReply& reply, const HttpCall& call, const HttpHeaders& extra, bool closes) {
  std::string head = fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
      "X-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n",
      status_line(reply.status), reply.type);
  for (const auto* headers : {&reply.headers, &extra})
    for (const auto& [name, value] : *headers) head += fmt::format("{}: {}\r\n", name, value);
  if (closes) head += "Connection: close\r\n";
  if (!closes && call.old) head += "Connection: keep-alive\r\n";  // or the client waits for the end
  return head;
}

}  // namespace

Exchange::Exchange(HttpServer& server, Connection& connection, HttpCall call)
    : server_(server), connection_(&connection), call_(std::move(call)) {}

void Exchange::reply(HttpReply reply) {
  if (!connection_ || begun_) return;
  status_ = reply.status;
  connection_->last |= !call_.keeps_alive || server_.closing_;
  connection_->out += head_of(reply, call_, extra_headers, connection_->last);
  if (reply.status != 204) connection_->out += fmt::format("Content-Length: {}\r\n", reply.body.size());
  connection_->out += "\r\n";
  if (call_.method != "HEAD" && reply.status != 204) connection_->out += reply.body;
  end();
}

void Exchange::begin(HttpReply head) {
  if (!connection_ || begun_) return;
  status_ = head.status, begun_ = true;
  // Without chunks the connection's end is that of the answer.
  connection_->last |= !call_.keeps_alive || call_.old || server_.closing_;
  connection_->out += head_of(head, call_, extra_headers, connection_->last) +
                      (call_.old ? "\r\n" : "Transfer-Encoding: chunked\r\n\r\n");
}

void Exchange::send(std::string_view piece) {
  if (!connection_ || piece.empty()) return;
  if (!call_.old) connection_->out += fmt::format("{:x}\r\n", piece.size());
  connection_->out += piece;
  if (!call_.old) connection_->out += "\r\n";
  if (connection_->unsent() <= server_.options_.unsent_bytes) return;
  server_.flush(*connection_);  // the socket may have room by now
  if (connection_ && connection_->unsent() > server_.options_.unsent_bytes)
    server_.drop(*connection_, Lost::kSlow);
}

void Exchange::finish() {
  if (!connection_ || !begun_) return;
  if (!call_.old) connection_->out += "0\r\n\r\n";
  end();
}

void Exchange::end() {
  Connection& connection = *std::exchange(connection_, nullptr);
  const auto self = std::move(connection.exchange);  // lives to the end of this call
  on_lost = {};
  if (const auto done = std::exchange(on_done, {})) done();
  server_.answered(connection);
}

void Exchange::lose(Lost how) {
  connection_ = nullptr, status_ = 0;
  if (const auto lost = std::exchange(on_lost, {})) lost(how);
  if (const auto done = std::exchange(on_done, {})) done();
}

}  // namespace tightloop::serve
