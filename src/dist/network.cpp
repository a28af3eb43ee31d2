#include "dist/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"

namespace tightloop {

namespace {

std::string text_of(const LinkSpeed& link) {
  return fmt::format(
      "{:.4g} GB/s in each direction, of which large messages reach {:.0f} %, and {:.3g} us for "
      "each message",
      link.peak / 1e9, 100 * link.efficiency, 1e6 * link.latency);
}

}  // namespace

// Assumptions, not measurements: what large all-reduces reach on such links, and what a small one takes for
// each hop.
LinkSpeed speed_of(LinkKind kind) {
  constexpr double kGbit = 1e9 / 8;
  switch (kind) {
    case LinkKind::kNvlink:
      return {.peak = 450e9, .efficiency = 0.8, .latency = 2e-6};
    case LinkKind::kPcie4:
      return {.peak = 31.5e9, .efficiency = 0.7, .latency = 5e-6};
    case LinkKind::k100Gbe:
      return {.peak = 100 * kGbit, .efficiency = 0.9, .latency = 10e-6};
    case LinkKind::k400Gbe:
      return {.peak = 400 * kGbit, .efficiency = 0.9, .latency = 10e-6};
  }
  return {};
}

double Network::bandwidth() const {
  const double across = static_cast<double>(cards) * between.bandwidth();
  if (nodes() == 1) return inside.bandwidth();
  return per_node == 1 ? across : std::min(inside.bandwidth(), across);
}

double Network::latency() const {
  if (world == 1) return 0;
  const auto N = static_cast<double>(nodes()), G = static_cast<double>(std::min(per_node, world));
  if (!trees) return N * (G - 1) * inside.latency + (N - 1) * between.latency;
  return (G - 1) * inside.latency + std::ceil(std::log2(N)) * between.latency;
}

double Network::scattered_bytes(double bytes) const {
  return bytes * static_cast<double>(world - 1) / static_cast<double>(world);
}

double Network::scatter_time(double bytes) const {
  return world == 1 ? 0 : latency() + scattered_bytes(bytes) / bandwidth();
}

double Network::chain_time(double bytes) const { return world == 1 ? 0 : latency() + bytes / bandwidth(); }

std::vector<std::string> Network::assumptions() const {
  std::vector<std::string> list;
  if (per_node > 1) list.push_back("Inside a machine: " + text_of(inside) + ".");
  if (nodes() > 1)
    list.push_back(fmt::format("Between {}: {} a machine, each {}.", counted(nodes(), "machine"),
                               counted(cards, "link"), text_of(between)));
  list.push_back(fmt::format(
      "Collectives are rings through all processes, at the speed of the narrowest link; {}. Nobody else uses "
      "the links.",
      trees && nodes() > 1 ? "their latency grows with the logarithm of the machines"
                           : "a message passes every process"));
  return list;
}

}  // namespace tightloop
