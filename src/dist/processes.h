#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "dist/launch.h"

namespace tightloop {

/// The processes that train together, each on its share of the rows. All of them make the same calls in the
/// same order. Alone (launched without torchrun), every call leaves things as they are and costs nothing.
///
/// A peer may take its time; one that is dead ends every call, the one under way and those to come, within
/// 10 seconds in an Error that says who it was. Calls on GPU tensors are different in that they do not wait:
/// after waiting for the GPU by other means, ask check().
class Processes {
 public:
  struct Timing {
    std::chrono::milliseconds join{300'000};  // for all to arrive
    std::chrono::milliseconds beat{500};      // between signs of life
    int missed = 14;                          // of them in a row that make a peer dead
  };

  /// Meets the others, or nobody where the environment names none.
  Processes() : Processes(launch_from_environment()) {}
  explicit Processes(const std::optional<Launch>& launch) : Processes(launch, Timing{}) {}
  Processes(const std::optional<Launch>& launch, const Timing& timing);
  /// Waits a little until all are done, unless an exception is on its way.
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  int rank() const { return launch_.rank; }
  int world() const { return launch_.world; }
  int local_rank() const { return launch_.local_rank; }
  /// Whether tensors travel at all.
  bool several() const { return peers_ != nullptr; }
  /// Whether this is the one that writes files and talks.
  bool main() const { return rank() == 0; }

  /// Adds up each tensor over all processes, in place and in its own dtype; the same bits everywhere. Small
  /// ones travel together. All have the same shapes and dtypes in every process.
  void sum_(at::TensorList tensors);
  double sum(double value);
  int64_t sum(int64_t value);
  /// Whether it is true in any process.
  bool any(bool value) { return world() == 1 ? value : sum(int64_t{value}) > 0; }

  /// Replaces the tensor's values by those of `root`.
  void broadcast(const at::Tensor& tensor, int root = 0);
  /// The value of `root`. Where that fails it warns and gives our own: for numbers that only inform.
  double broadcast_value(double value, int root = 0);

  /// Waits until all have come here.
  void barrier();
  /// Throws where a peer is dead; waits for nothing.
  void check();

 private:
  class Peers;
  Launch launch_;
  std::unique_ptr<Peers> peers_;  // null when alone
};

}  // namespace tightloop
