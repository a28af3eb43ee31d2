#pragma once

#include <string>
#include <string_view>

#include "serve/http/http_call.h"

namespace tightloop::serve {

/// Who may ask.
struct AccessRules {
  std::string host = "127.0.0.1";  // where the server listens
  std::string key{};               // of the API; empty: everybody who may reach the server
  std::string cors{};              // another origin whose pages may ask; empty: none
};

/// Whether an address or name can only be reached from this machine.
bool is_loopback(std::string_view host);

/// Whether both are the same; how long it takes does not tell how much of them is.
bool same_secret(std::string_view given, std::string_view secret);

/// Why a request is refused, by where it comes from: a page of another site must not drive a server on this
/// machine, neither by its own name (Origin) nor by one that was made to lead here (Host: DNS rebinding).
/// Where there is a key, which such a page does not have, any Host will do.
HttpRefusal check_origin(const HttpCall& call, const AccessRules& rules);

/// Whether "Authorization: Bearer KEY" is there and right, or no key is asked for.
bool has_key(const HttpCall& call, const AccessRules& rules);

/// Whether a browser could name this as a page's origin: scheme, host and port alone.
bool is_origin(std::string_view text);

/// What tells a browser that pages of the origin `cors` may ask, with whatever headers, and read; nothing for
/// others.
HttpHeaders cors_headers(const HttpCall& call, const AccessRules& rules);

}  // namespace tightloop::serve
