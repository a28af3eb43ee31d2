#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/choice.h"

namespace tightloop {

/// What joins GPUs or machines.
enum class LinkKind { kNvlink, kPcie4, k100Gbe, k400Gbe };
template <>
inline constexpr auto kChoices<LinkKind> = std::to_array<Choice<LinkKind>>({
    {LinkKind::kNvlink, "nvlink", "NVLink 4 through a switch: 450 GB/s in each direction"},
    {LinkKind::kPcie4, "pcie4", "PCI Express 4.0 x16: 31.5 GB/s"},
    {LinkKind::k100Gbe, "100gbe", "a network card of 100 Gb/s"},
    {LinkKind::k400Gbe, "400gbe", "a network card of 400 Gb/s"},
});

/// A link in one direction.
struct LinkSpeed {
  double peak = 0;        // bytes per second, as it is sold
  double efficiency = 1;  // which part of that large messages reach
  double latency = 0;     // seconds that a message takes besides
  double bandwidth() const { return peak * efficiency; }
};
LinkSpeed speed_of(LinkKind kind);

/// What `world` processes exchange tensors through, and how long that takes. Collectives are rings through
/// all processes, so each process sends and receives the same and the narrowest link sets the pace; a machine
/// has `cards` links to the others, each of which carries its part.
struct Network {
  int64_t world = 1, per_node = 8;  // processes, in all and in a machine
  int64_t cards = 1;                // of a machine, to the others
  LinkSpeed inside{}, between{};    // of a process to its neighbour, of a card
  /// Messages go from machine to machine along a tree (NCCL), so that latencies grow with the logarithm of
  /// the machines; else (Gloo) along the ring.
  bool trees = true;

  int64_t nodes() const { return (world + per_node - 1) / per_node; }
  /// Bytes per second that a ring through all processes moves.
  double bandwidth() const;
  /// Seconds that the messages of one way around take: those of a reduce-scatter, or of an all-gather.
  double latency() const;

  /// Of a tensor of `bytes`, what each process sends, and how long it takes.
  double scattered_bytes(double bytes) const;  // reduce-scatter, all-gather
  double reduced_bytes(double bytes) const { return 2 * scattered_bytes(bytes); }  // all-reduce
  double scatter_time(double bytes) const;
  double reduce_time(double bytes) const { return 2 * scatter_time(bytes); }
  /// Of a reduction to one process, or a broadcast from one: all of it goes through every link but one.
  double chain_time(double bytes) const;

  /// All that it takes for granted, a sentence each.
  std::vector<std::string> assumptions() const;
};

}  // namespace tightloop
