#include "serve/http/call_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

namespace tightloop::serve {

namespace {

constexpr size_t kMostHeaders = 100, kLongestChunkLine = 256;

bool is_token(std::string_view text) {
  const auto part = [](unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) != std::string_view::npos;
  };
  return !text.empty() && std::ranges::all_of(text, part);
}

std::string lower(std::string_view text) {
  std::string made(text);
  std::ranges::transform(made, made.begin(), [](unsigned char c) { return std::tolower(c); });
  return made;
}

std::string_view trimmed(std::string_view text) {
  const size_t from = text.find_first_not_of(" \t"), to = text.find_last_not_of(" \t");
  return from == text.npos ? std::string_view() : text.substr(from, to - from + 1);
}

/// Whether a line may be one: with a bare line feed in it another reader could see two.
bool is_line(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return c == '\t' || (c >= ' ' && c != 0x7f); });
}

template <class Number>
bool parse_number(std::string_view text, Number& number, int base = 10) {
  if (text.empty() || !std::isxdigit(static_cast<unsigned char>(text[0]))) return false;  // no sign
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() && end == text.data() + text.size();
}

/// Without %XX; false where one is none, or is a NUL.
bool unescape(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned value = 0;
    if (text.size() - i < 3 || !std::isxdigit(static_cast<unsigned char>(text[i + 2])) ||
        !parse_number(text.substr(i + 1, 2), value, 16) || value == 0)
      return false;
    out += static_cast<char>(value);
    i += 2;
  }
  return true;
}

}  // namespace

CallParser::State CallParser::refuse(int status, std::string why) {
  refusal_ = {status, std::move(why)};
  return state_ = State::kRefused;
}

CallParser::State CallParser::add(std::string_view bytes) {
  if (state_ == State::kRefused) return state_;
  in_ += bytes;
  if (state_ == State::kHead && !read_head()) return state_;
  if (state_ == State::kBody && (chunked_ ? read_chunks() : read_sized_body())) state_ = State::kWhole;
  return state_;
}

HttpCall CallParser::take() {
  HttpCall call = std::exchange(call_, {});
  state_ = State::kHead;
  looked_ = length_ = trailer_bytes_ = 0;
  chunked_ = expects_continue_ = false;
  chunk_ = Chunk::kSize;
  return call;
}

bool CallParser::take_expects_continue() { return std::exchange(expects_continue_, false); }

/// True where the head is whole and right: the body follows.
bool CallParser::read_head() {
  constexpr size_t kMostEmptyLines = 8;  // what some clients put between requests
  size_t empty = 0;
  while (empty < kMostEmptyLines && in_.compare(2 * empty, 2, "\r\n") == 0) ++empty;
  in_.erase(0, 2 * empty);
  if ((empty_lines_ += empty) >= kMostEmptyLines) {
    refuse(400, "a request begins with its first line, not with empty ones.");
    return false;
  }
  if (!in_.empty() && !in_.starts_with('\r')) empty_lines_ = 0;
  const size_t end = in_.find("\r\n\r\n", looked_);
  // Up to three bytes of what ends it may be there.
  if (end == in_.npos ? in_.size() > limits_.head_bytes + 3 : end > limits_.head_bytes) {
    refuse(431, fmt::format("the request's headers are longer than {} bytes.", limits_.head_bytes));
    return false;
  }
  if (end == in_.npos) {
    looked_ = in_.size() < 3 ? 0 : in_.size() - 3;
    return false;
  }
  std::string_view head = std::string_view(in_).substr(0, end);
  for (bool first = true; first || !head.empty(); first = false) {
    const size_t line_end = head.find("\r\n");
    const std::string_view line = head.substr(0, line_end);
    head.remove_prefix(line_end == head.npos ? head.size() : line_end + 2);
    if (!(first ? read_first_line(line) : read_header(line))) return false;
  }
  in_.erase(0, end + 4);
  if (!check_head()) return false;
  state_ = State::kBody;
  return true;
}

bool CallParser::read_first_line(std::string_view line) {
  const size_t space = line.find(' '), last = line.rfind(' ');
  const auto wrong = [&](int status, std::string why) {
    refuse(status, std::move(why));
    return false;
  };
  if (space == line.npos || last == space || !is_token(line.substr(0, space)))
    return wrong(400, "this is not a request of HTTP/1.1.");
  const std::string_view target = line.substr(space + 1, last - space - 1), version = line.substr(last + 1);
  if (!version.starts_with("HTTP/")) return wrong(400, "this is not a request of HTTP/1.1.");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return wrong(505, "only HTTP/1.1 is spoken here.");
  call_.old = version == "HTTP/1.0";
  const auto printable = [](char c) { return c > ' ' && c < '\x7f'; };
  const size_t mark = std::min(target.find('?'), target.size());
  if (!target.starts_with('/') || !std::ranges::all_of(target, printable) ||
      !unescape(target.substr(0, mark), call_.path))
    return wrong(400, "the request's path is malformed.");
  call_.method = line.substr(0, space);
  call_.query = target.substr(std::min(mark + 1, target.size()));
  return true;
}

bool CallParser::read_header(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == line.npos || !is_token(line.substr(0, colon)) || !is_line(line)) {
    refuse(400, "a header is malformed.");
    return false;
  }
  if (call_.headers.size() == kMostHeaders) {
    refuse(431, fmt::format("the request has more than {} headers.", kMostHeaders));
    return false;
  }
  call_.headers.emplace_back(lower(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
  return true;
}

/// What the headers say of the body and of the connection.
bool CallParser::check_head() {
  const auto count = [&](std::string_view name) {
    return std::ranges::count(call_.headers, name, &std::pair<std::string, std::string>::first);
  };
  const auto wrong = [&](int status, std::string why) {
    refuse(status, std::move(why));
    return false;
  };
  if (count("host") > 1 || (count("host") == 0 && !call_.old))
    return wrong(400, "a request has one Host header.");
  if (count("transfer-encoding") > 1 || count("content-length") > 1 || count("authorization") > 1 ||
      count("origin") > 1 || (count("transfer-encoding") > 0 && (call_.old || count("content-length") > 0)))
    return wrong(400, "the request's headers contradict each other.");
  if (const auto encoding = call_.header("transfer-encoding"); !encoding.empty()) {
    if (lower(encoding) != "chunked")
      return wrong(501, "of transfer encodings only 'chunked' is understood.");
    chunked_ = true;
  } else if (count("content-length") > 0) {
    uint64_t length = 0;
    const std::string_view text = call_.header("content-length");
    if (text.find_first_not_of("0123456789") != text.npos || !parse_number(text, length))
      return wrong(400, "the Content-Length is not a number.");
    if (length > limits_.body_bytes)
      return wrong(413,
                   fmt::format("the body has {} bytes; at most {} are read.", length, limits_.body_bytes));
    length_ = length;
  } else if (count("transfer-encoding") > 0) {
    return wrong(400, "the Transfer-Encoding is empty.");
  }
  const std::string connection = lower(call_.header("connection"));
  call_.keeps_alive = call_.old ? connection == "keep-alive" : connection.find("close") == std::string::npos;
  if (const auto expect = call_.header("expect"); !expect.empty()) {
    if (lower(expect) != "100-continue") return wrong(417, "of expectations only '100-continue' is met.");
    expects_continue_ = !call_.old && (chunked_ || length_ > 0);
  }
  return true;
}

bool CallParser::read_sized_body() {
  if (in_.size() < length_) return false;
  call_.body = in_.substr(0, length_);
  in_.erase(0, length_);
  return true;
}

/// True where the last chunk, and what may follow it, is read.
bool CallParser::read_chunks() {
  size_t at = 0;
  const auto leave = [&](bool whole) {
    in_.erase(0, at);
    return whole;
  };
  for (;;) {
    if (chunk_ == Chunk::kData) {
      const size_t part = std::min(length_, in_.size() - at);
      call_.body.append(in_, at, part);
      at += part, length_ -= part;
      if (length_ > 0) return leave(false);
      chunk_ = Chunk::kEnd;
    }
    const size_t end = in_.find("\r\n", at);
    if (std::min(end, in_.size()) - at > kLongestChunkLine) {
      refuse(400, "a chunk of the body is malformed.");
      return false;
    }
    if (end == in_.npos) return leave(false);
    const std::string_view line = std::string_view(in_).substr(at, end - at);
    at = end + 2;
    if (!is_line(line) || (chunk_ == Chunk::kEnd && !line.empty())) {
      refuse(400, "a chunk of the body is malformed.");
      return false;
    }
    if (chunk_ == Chunk::kEnd) {
      chunk_ = Chunk::kSize;
    } else if (chunk_ == Chunk::kSize) {
      uint64_t size = 0;
      if (!parse_number(line.substr(0, line.find(';')), size, 16)) {
        refuse(400, "a chunk of the body is malformed.");
        return false;
      }
      if (size > limits_.body_bytes - call_.body.size()) {
        refuse(413, fmt::format("the body is longer than the {} bytes that are read.", limits_.body_bytes));
        return false;
      }
      length_ = size;
      chunk_ = size == 0 ? Chunk::kTrailer : Chunk::kData;
    } else if (line.empty()) {
      return leave(true);
    } else if ((trailer_bytes_ += line.size()) > limits_.head_bytes) {  // headers behind the body: not read
      refuse(431, "the headers behind the body are too long.");
      return false;
    }
  }
}

}  // namespace tightloop::serve
