#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/fit/compute_times.h"
#include "cli/fit/training_memory.h"
#include "dist/network.h"
#include "train/optim/step_prediction.h"

namespace CLI {
class App;
}

namespace tightloop::cli {

/// What 'fit' is asked about several processes.
struct WorldQuestion {
  int64_t world = 0;  // 0: not asked
  std::optional<LinkKind> link{};
  LinkKind inside = LinkKind::kNvlink;  // where `link` is a network
  int64_t per_node = 8, cards = 1;
  double gbit = 0, latency_us = -1;  // of a link that was measured, in place of what `link` stands for
  StepQuestion step{};
  bool buckets = false;  // for people: with a table of them

  void add_to(CLI::App& verb);
  bool asked() const { return world > 0; }
  /// Without --link any will do for bytes. A usage error where the options do not fit together. `nccl`: else
  /// it is Gloo.
  Network network(bool nccl) const;
};

/// What several processes will do, and what that rests on.
struct WorldPrediction {
  Network network;
  ComputeTimes times;
  StepPrediction step;
  std::string untimed{};  // why nothing is said of times, and what to give; else empty
  bool buckets = false;   // for people: a table of them
};

/// `recipe` and `memory` are those of one of the processes.
WorldPrediction predict(const WorldQuestion& asked, const Recipe& recipe, const TrainingMemory& memory);

/// For people, and for programs.
std::string text_of(const WorldPrediction& found, const Recipe& recipe);
nlohmann::ordered_json json_of(const WorldPrediction& found, const Recipe& recipe);

}  // namespace tightloop::cli
