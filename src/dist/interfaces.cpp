#include "dist/interfaces.h"

#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include "core/error.h"
#include "core/log.h"

namespace tightloop {

namespace {

std::string numbers_of(const sockaddr* address) {
  const socklen_t size = address->sa_family == AF_INET ? 16 : 28;  // sockaddr_in, sockaddr_in6
  char text[NI_MAXHOST];
  return ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

std::vector<std::string> listed(const std::string& value) {
  std::vector<std::string> names;
  std::istringstream items(value);
  for (std::string name; std::getline(items, name, ',');)
    if (!name.empty()) names.push_back(name);
  return names;
}

Error no_such_interface(const char* variable, const std::string& value, const std::vector<Interface>& there) {
  return usage_error(
      "{} is '{}', and this machine has the network interfaces {}. Name one of them, or unset {}.", variable,
      value, interfaces_text(there), variable);
}

}  // namespace

std::vector<Interface> interfaces() {
  std::vector<Interface> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(list, ::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* one = list; one; one = one->ifa_next) {
      if (!one->ifa_addr || one->ifa_addr->sa_family != family || !(one->ifa_flags & IFF_UP)) continue;
      const auto address = numbers_of(one->ifa_addr);
      const bool known = std::ranges::any_of(found, [&](const auto& it) { return it.name == one->ifa_name; });
      if (known || address.empty() || address.starts_with("fe80:")) continue;  // of its own cable only
      found.push_back({one->ifa_name, address, (one->ifa_flags & IFF_LOOPBACK) != 0});
    }
  return found;
}

std::string interfaces_text(const std::vector<Interface>& interfaces) {
  std::vector<std::string> texts;
  for (const auto& one : interfaces) texts.push_back(fmt::format("{} ({})", one.name, one.address));
  return fmt::format("{}", fmt::join(texts, ", "));
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

std::string address_towards(const std::string& host) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_DGRAM;  // to connect such a socket sends nothing
  if (::getaddrinfo(host.c_str(), "9", &hints, &list) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list, ::freeaddrinfo);
  for (const addrinfo* one = list; one; one = one->ai_next) {
    const int socket = ::socket(one->ai_family, one->ai_socktype, one->ai_protocol);
    if (socket < 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    auto* address = reinterpret_cast<sockaddr*>(&own);
    const bool there =
        ::connect(socket, one->ai_addr, one->ai_addrlen) == 0 && ::getsockname(socket, address, &size) == 0;
    ::close(socket);
    if (there) return numbers_of(address);
  }
  return {};
}

std::string reachable_address(const std::string& meeting_point) {
  if (is_loopback(meeting_point)) return "127.0.0.1";
  const std::string towards = address_towards(meeting_point);
  if (towards.empty() || !is_loopback(towards)) return towards;
  auto others = interfaces();
  std::erase_if(others, [](const Interface& one) { return one.loopback; });
  if (others.empty()) return towards;
  if (others.size() > 1)
    log::warn(
        "This machine takes '{}' (MASTER_ADDR) for its loopback, which other machines cannot reach. {} ({}) "
        "of {} is used; GLOO_SOCKET_IFNAME names another.",
        meeting_point, others.front().name, others.front().address, interfaces_text(others));
  return others.front().address;
}

std::vector<std::string> gloo_interfaces(const std::string& value, const std::vector<Interface>& there) {
  const auto names = listed(value);
  for (const auto& name : names)
    if (std::ranges::none_of(there, [&](const auto& one) { return one.name == name; }))
      throw no_such_interface("GLOO_SOCKET_IFNAME", value, there);
  if (names.empty()) throw no_such_interface("GLOO_SOCKET_IFNAME", value, there);
  return names;
}

void check_nccl_interfaces(const std::string& value, const std::vector<Interface>& there) {
  const bool others = value.starts_with('^');
  std::string_view rest = std::string_view(value).substr(others ? 1 : 0);
  const bool whole = rest.starts_with('=');
  const auto names = listed(std::string(rest.substr(whole ? 1 : 0)));
  const auto named = [&](const Interface& one) {
    return std::ranges::any_of(
        names, [&](const auto& name) { return whole ? one.name == name : one.name.starts_with(name); });
  };
  if (std::ranges::none_of(there, [&](const auto& one) { return named(one) != others; }))
    throw no_such_interface("NCCL_SOCKET_IFNAME", value, there);
}

}  // namespace tightloop
