#include "dist/rendezvous.h"

#include <fmt/ranges.h>

#include <vector>

#include "core/error.h"
#include "dist/launcher.h"

namespace tightloop {

namespace {

constexpr const char* kNames[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"};

/// torchrun's variables, all of which are set.
Rendezvous by_torchrun(bool torchrun) {
  Rendezvous rendezvous;
  rendezvous.world = variable_number("WORLD_SIZE", 1, 1 << 20);
  rendezvous.rank = variable_number("RANK", 0, rendezvous.world - 1);
  rendezvous.local_rank = variable_number("LOCAL_RANK", 0, rendezvous.rank);
  rendezvous.address = variable("MASTER_ADDR");
  rendezvous.port = static_cast<uint16_t>(variable_number("MASTER_PORT", 1, 65535));
  rendezvous.store_runs = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  rendezvous.run = variable("TORCHELASTIC_RUN_ID");
  rendezvous.group_of_one = variable("TIGHTLOOP_GROUP_OF_ONE") == "1";
  rendezvous.launcher = torchrun ? "torchrun" : "RANK and WORLD_SIZE in the environment";
  return rendezvous;
}

[[noreturn]] void refuse(const Launched& by, const char* name, int value, const char* theirs, int other) {
  throw usage_error(
      "the environment's {} is {}, but {}, set by {}, is {}. Unset {}, or start the processes with the one "
      "launcher that is meant.",
      name, value, theirs, by.by, other, name);
}

/// Numbers of its own are good for a process of many that each one of mpirun or srun has started.
void compare(const Rendezvous& own, const Launched& by) {
  if (own.world < by.size) refuse(by, "WORLD_SIZE", own.world, by.size_in, by.size);
  if (own.world == by.size && own.rank != by.rank) refuse(by, "RANK", own.rank, by.rank_in, by.rank);
}

Rendezvous by_launcher(const Launched& by) {
  const auto agree = [&](const char* name, const char* theirs, int wanted) {
    if (variable(name).empty()) return;
    const int value = variable_number(name, 0, 1 << 20);
    if (value != wanted) refuse(by, name, value, theirs, wanted);
  };
  agree("RANK", by.rank_in, by.rank), agree("WORLD_SIZE", by.size_in, by.size);
  Rendezvous rendezvous{.rank = by.rank, .world = by.size, .address = by.address, .port = by.port};
  rendezvous.launcher = by.by;
  if (by.size == 1) return rendezvous;
  if (!variable("LOCAL_RANK").empty()) {
    rendezvous.local_rank = variable_number("LOCAL_RANK", 0, by.rank);
  } else if (by.local_rank) {
    rendezvous.local_rank = *by.local_rank;
  } else {
    throw usage_error(
        "{} has not said which of its machine's processes this one is, so that it does not know its GPU. Set "
        "LOCAL_RANK, from 0 on each machine.",
        by.by);
  }
  if (const auto address = variable("MASTER_ADDR"); !address.empty()) rendezvous.address = address;
  if (!variable("MASTER_PORT").empty())
    rendezvous.port = static_cast<uint16_t>(variable_number("MASTER_PORT", 1, 65535));
  const bool placed = !rendezvous.address.empty();
  if (!placed || rendezvous.port == 0)
    throw usage_error("{} has started {} processes{}, and nothing says {}. Say it: {}.", by.by, by.size,
                      placed ? "" : ", as it seems on several machines",
                      placed ? "at which port they meet (MASTER_PORT)" : "where they meet (MASTER_ADDR)",
                      by.advice);
  return rendezvous;
}

}  // namespace

std::optional<Rendezvous> rendezvous_from_environment() {
  std::vector<std::string> set, missing;
  for (const char* name : kNames) (variable(name).empty() ? missing : set).push_back(name);
  // torchrun may itself have been started by the others, once on each machine.
  const bool torchrun = missing.empty() && !variable("TORCHELASTIC_RUN_ID").empty();
  const auto by = torchrun ? std::nullopt : launched();
  if (missing.empty()) {
    auto rendezvous = by_torchrun(torchrun);
    if (by) compare(rendezvous, *by);
    return rendezvous;
  }
  if (by) return by_launcher(*by);
  if (set.empty()) return std::nullopt;
  const bool only_local = missing == std::vector<std::string>{"LOCAL_RANK"};
  throw usage_error(
      "the environment has {} but not {}. Start several processes with torchrun, which sets all of them, or "
      "with mpirun or srun{}, or unset them for one process.",
      fmt::join(set, ", "), fmt::join(missing, ", "),
      only_local ? ", or set LOCAL_RANK (0 with one process a machine)" : "");
}

}  // namespace tightloop
