#pragma once

#include <string>
#include <vector>

namespace tightloop {

/// A network interface of this machine that is up.
struct Interface {
  std::string name, address;  // as numbers; of several addresses that of IPv4
  bool loopback = false;
};
std::vector<Interface> interfaces();
/// "lo (127.0.0.1), eth0 (10.0.0.2)".
std::string interfaces_text(const std::vector<Interface>& interfaces);

bool is_loopback(const std::string& address);

/// This machine's address, as numbers, on the way to `host`; empty where there is no such host or no way.
std::string address_towards(const std::string& host);

/// Where the other processes reach this one when all of them know `meeting_point` (MASTER_ADDR). The way
/// there decides, not the machine's own name, which many systems have stand for the loopback; where that
/// is true of the meeting point as well, the first interface that is no loopback, with a warning where there
/// are several. Empty where nothing is known.
std::string reachable_address(const std::string& meeting_point);

/// A usage error that lists the interfaces there are where $GLOO_SOCKET_IFNAME names another; the names.
std::vector<std::string> gloo_interfaces(const std::string& value, const std::vector<Interface>& there);
/// The same where $NCCL_SOCKET_IFNAME leaves none: beginnings of names, after '=' whole names, after '^'
/// those that are not to be used.
void check_nccl_interfaces(const std::string& value, const std::vector<Interface>& there);

}  // namespace tightloop
