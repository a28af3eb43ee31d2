#include "serve/http/access.h"

#include <algorithm>
#include <cctype>

namespace tightloop::serve {

namespace {

std::string lower_case(std::string_view text) {
  std::string made(text);
  std::ranges::transform(made, made.begin(), [](unsigned char c) { return std::tolower(c); });
  return made;
}

/// Of "name:port", "[::1]:port": the name; empty where it is no such thing.
std::string_view host_name(std::string_view host) {
  const size_t close = host.starts_with('[') ? host.find(']') : 0;
  if (close == host.npos) return {};
  const size_t colon = host.find(':', close);
  const std::string_view port = colon == host.npos ? "0" : host.substr(colon + 1);
  if (port.empty() || port.find_first_not_of("0123456789") != port.npos) return {};
  return host.substr(0, colon);
}

}  // namespace

bool is_loopback(std::string_view host) {
  const auto digits = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) || c == '.'; };
  if (host.starts_with("127.") && std::ranges::all_of(host, digits)) return true;
  return host == "localhost" || host == "::1" || host == "[::1]";
}

bool same_secret(std::string_view given, std::string_view secret) {
  unsigned difference = given.size() != secret.size();
  for (size_t i = 0; i < given.size(); ++i) {
    const char right = secret.empty() ? '\0' : secret[i % secret.size()];
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(right);
  }
  return difference == 0;
}

HttpRefusal check_origin(const HttpCall& call, const AccessRules& rules) {
  const std::string host = lower_case(call.header("host"));
  const std::string_view name = host_name(host);
  if (rules.key.empty() && !is_loopback(name) && name != lower_case(rules.host))
    return {421, "this server answers to 127.0.0.1 and localhost, not to the name in the Host header."};
  const std::string origin = lower_case(call.header("origin"));
  if (origin.empty() || (!rules.cors.empty() && origin == lower_case(rules.cors))) return {};
  // A page of this server's own, also behind a proxy that speaks TLS.
  if (origin == "http://" + host || origin == "https://" + host) return {};
  return {403, "pages of other sites may not ask this server; --cors names one that may."};
}

bool has_key(const HttpCall& call, const AccessRules& rules) {
  if (rules.key.empty()) return true;
  constexpr std::string_view kBearer = "bearer ";
  const std::string_view given = call.header("authorization");
  if (lower_case(given.substr(0, kBearer.size())) != kBearer) return false;
  return same_secret(given.substr(kBearer.size()), rules.key);
}

bool is_origin(std::string_view text) {
  const size_t mark = text.find("://");
  if (mark == text.npos || !std::ranges::all_of(text.substr(0, mark), [](unsigned char c) {
        return std::isalnum(c) || c == '-';  // browsers have schemes of extensions, too
      }))
    return false;
  const std::string_view host = text.substr(mark + 3);
  return mark > 0 && host.find_first_of("/*?#@ \t,") == host.npos && !host_name(host).empty();
}

HttpHeaders cors_headers(const HttpCall& call, const AccessRules& rules) {
  const std::string_view origin = call.header("origin");
  if (rules.cors.empty() || lower_case(origin) != lower_case(rules.cors)) return {};
  // Clients of OpenAI's API send headers that describe themselves.
  const std::string_view asked = call.header("access-control-request-headers");
  return {
      {"Access-Control-Allow-Origin", std::string(origin)},  // compared letter by letter
      {"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
      {"Access-Control-Allow-Headers", asked.empty() ? "Authorization, Content-Type" : std::string(asked)},
      {"Vary", "Origin, Access-Control-Request-Headers"}};
}

}  // namespace tightloop::serve
