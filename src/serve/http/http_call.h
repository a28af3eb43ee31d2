#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tightloop::serve {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

/// A request as it was received.
struct HttpCall {
  std::string method{}, path{}, query{};  // "%41" in the path is 'A' already
  HttpHeaders headers{};                  // names in lower case
  std::string body{};
  bool old = false;         // of HTTP/1.0, which knows no chunks
  bool keeps_alive = true;  // whether the client may ask again through the same connection

  /// The first header of this name (in lower case); empty where there is none.
  std::string_view header(std::string_view name) const;
};

struct HttpReply {
  int status = 200;
  std::string type = "application/json", body{};
  HttpHeaders headers{};
};

/// "404 Not Found".
std::string status_line(int status);

/// JSON on one line; bytes that are not UTF-8 become U+FFFD.
std::string json_text(const nlohmann::json& json);

/// An error as OpenAI's API has it: {"error": {"message", "type", "param", "code"}}.
HttpReply error_reply(int status, std::string_view message, std::string_view type = "invalid_request_error",
                      std::string_view param = {}, std::string_view code = {});

/// Reasons for which a request is not read, by status; nothing of HTTP's is left to guess.
struct HttpRefusal {
  int status = 0;  // 0: none
  std::string why{};
};

}  // namespace tightloop::serve
