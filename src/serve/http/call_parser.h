#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "serve/http/http_call.h"

namespace tightloop::serve {

struct CallLimits {
  size_t head_bytes = size_t{1} << 14;  // request line and headers
  size_t body_bytes = size_t{1} << 22;
};

/// HTTP/1.1 requests out of the bytes of a connection, as they come, one after another. Strict: what two
/// readers could understand in two ways (two lengths, a bare line feed, folded headers) is refused.
class CallParser {
 public:
  explicit CallParser(const CallLimits& limits) : limits_(limits) {}

  enum class State { kHead, kBody, kWhole, kRefused };

  /// Adds bytes and reads on, up to the end of one request. What follows waits for next().
  State add(std::string_view bytes);
  State state() const { return state_; }
  /// Once kWhole: the request; reading goes on with what came behind it.
  HttpCall take();
  State next() { return add({}); }
  /// Once kRefused: why. The connection is of no use any more.
  const HttpRefusal& refusal() const { return refusal_; }
  /// Whether the client waits for "100 Continue" before it sends the body; true once for each request.
  bool take_expects_continue();
  /// Whether a part of a request is there.
  bool begun() const { return state_ == State::kBody || !in_.empty(); }

 private:
  State refuse(int status, std::string why);
  bool read_head();
  bool read_first_line(std::string_view line);
  bool read_header(std::string_view line);
  bool check_head();
  bool read_sized_body();
  bool read_chunks();

  const CallLimits limits_;
  State state_ = State::kHead;
  std::string in_;
  size_t looked_ = 0;  // bytes of in_ in which the end of the head is not
  HttpCall call_;
  HttpRefusal refusal_;
  bool chunked_ = false, expects_continue_ = false;
  size_t length_ = 0;  // of the body, or what is left of a chunk
  enum class Chunk { kSize, kData, kEnd, kTrailer } chunk_ = Chunk::kSize;
  size_t trailer_bytes_ = 0;
  size_t empty_lines_ = 0;  // before the request
};

}  // namespace tightloop::serve
