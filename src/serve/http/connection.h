#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "serve/http/call_parser.h"

namespace tightloop::serve {

class Exchange;

/// One connection of an HttpServer.
struct Connection {
  Connection(int socket, const CallLimits& limits) : descriptor(socket), parser(limits) {}

  int descriptor;
  CallParser parser;
  std::shared_ptr<Exchange> exchange{};  // the request that is being answered
  std::string out{};                     // to be sent, from `sent` on
  size_t sent = 0;
  bool last = false;      // closes when `out` is sent
  bool draining = false;  // it is sent: the client may close first
  bool dead = false;
  std::chrono::steady_clock::time_point until{};  // for what is waited for now

  size_t unsent() const { return out.size() - sent; }
};

}  // namespace tightloop::serve
