#include "dist/rendezvous.h"

#include <fmt/ranges.h>

#include <charconv>
#include <cstdlib>
#include <vector>

#include "core/error.h"

namespace tightloop {

namespace {

constexpr const char* kNames[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"};

std::string value_of(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

int number_of(const char* name, int least, int most) {
  const std::string text = value_of(name);
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, problem] = std::from_chars(text.data(), end, number);
  if (problem != std::errc{} || stopped != end || number < least || number > most) {
    throw usage_error(
        "the environment variable {} is '{}', and a number from {} to {} is expected. Start several "
        "processes "
        "with torchrun, or unset {} for one process.",
        name, text, least, most, fmt::join(kNames, ", "));
  }
  return number;
}

}  // namespace

std::optional<Rendezvous> rendezvous_from_environment() {
  std::vector<std::string> set, missing;
  for (const char* name : kNames) (value_of(name).empty() ? missing : set).push_back(name);
  if (set.empty()) return std::nullopt;
  if (!missing.empty()) {
    throw usage_error(
        "the environment has {} but not {}. Start several processes with torchrun, which sets all of them, "
        "or "
        "unset them for one process.",
        fmt::join(set, ", "), fmt::join(missing, ", "));
  }
  Rendezvous rendezvous;
  rendezvous.world = number_of("WORLD_SIZE", 1, 1 << 20);
  rendezvous.rank = number_of("RANK", 0, rendezvous.world - 1);
  rendezvous.local_rank = number_of("LOCAL_RANK", 0, rendezvous.rank);
  rendezvous.address = value_of("MASTER_ADDR");
  rendezvous.port = static_cast<uint16_t>(number_of("MASTER_PORT", 1, 65535));
  rendezvous.store_runs = value_of("TORCHELASTIC_USE_AGENT_STORE") == "True";
  rendezvous.attempt =
      fmt::format("{}/{}", value_of("TORCHELASTIC_RUN_ID"), value_of("TORCHELASTIC_RESTART_COUNT"));
  return rendezvous;
}

}  // namespace tightloop
