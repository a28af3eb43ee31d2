#include "serve/http/http_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tightloop::serve {

std::string_view HttpCall::header(std::string_view name) const {
  const auto found = std::ranges::find(headers, name, &std::pair<std::string, std::string>::first);
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

std::string status_line(int status) {
  static constexpr std::pair<int, const char*> kNames[] = {
      {200, "OK"},
      {204, "No Content"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {413, "Content Too Large"},
      {417, "Expectation Failed"},
      {421, "Misdirected Request"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
      {505, "HTTP Version Not Supported"},
  };
  for (const auto& [number, name] : kNames)
    if (number == status) return fmt::format("{} {}", number, name);
  return fmt::format("{} Other", status);
}

HttpReply error_reply(int status, std::string_view message, std::string_view type, std::string_view param,
                      std::string_view code) {
  const auto or_null = [](std::string_view text) {
    return text.empty() ? nlohmann::json() : nlohmann::json(std::string(text));
  };
  const nlohmann::json error{{"message", std::string(message)},
                             {"type", std::string(type)},
                             {"param", or_null(param)},
                             {"code", or_null(code)}};
  HttpReply reply{.status = status, .body = json_text({{"error", error}}) + "\n"};
  if (status == 429 || status == 503) reply.headers.emplace_back("Retry-After", "1");
  if (status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

std::string json_text(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tightloop::serve
