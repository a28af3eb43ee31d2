#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "dist/rendezvous.h"

namespace tightloop {

class Peers;

/// A collective under way. It keeps its tensors alive; what is in them is for nobody until wait().
///
/// Dropped without wait(), it still takes place, for the peers count on it, but what it gives is lost: its
/// output may hold anything.
class [[nodiscard]] Pending {
 public:
  /// One that is done.
  Pending() = default;
  explicit Pending(std::function<void()> finish) : finish_(std::move(finish)) {}
  Pending(Pending&& other) noexcept : finish_(std::exchange(other.finish_, nullptr)) {}
  Pending& operator=(Pending&& other) noexcept {
    finish_ = std::exchange(other.finish_, nullptr);
    return *this;
  }

  /// The same, and what is to be done with the result, once, by wait().
  Pending then(std::function<void()> next) && {
    return Pending([finish = std::exchange(finish_, nullptr), next = std::move(next)] {
      if (finish) finish();
      next();
    });
  }

  /// From here on the result is there: for the host where it is on the CPU, for what comes next on the
  /// current stream where it is on a GPU. Once more, it does nothing; after an error it throws that again.
  void wait() {
    if (finish_) finish_();
    finish_ = nullptr;
  }

 private:
  std::function<void()> finish_;
};

/// Ends the program, where another process has failed and this one is in a computation that it cannot leave.
using LastResort = std::function<void(const Error& why)>;

/// The processes that train together, each on its share of the rows. All of them make the same calls in the
/// same order. Alone (launched without torchrun, mpirun or srun), every call leaves things as they are and
/// costs nothing.
///
/// A peer may take its time; one that has failed or is dead ends every call, the one under way and those to
/// come, within 10 seconds in an Error that says who it was and why, in the same words and with the same exit
/// code in every process. Calls may come from any thread, one at a time. Those on GPU tensors are different
/// in that they do not wait: after waiting for the GPU by other means, ask check().
class Processes {
 public:
  struct Timing {
    std::chrono::milliseconds join{300'000};  // for all to arrive
    std::chrono::milliseconds beat{500};      // between signs of life
    int missed = 12;                          // of them in a row that make a peer dead
  };

  /// Meets the others, or nobody where the environment names none.
  Processes() : Processes(rendezvous_from_environment()) {}
  explicit Processes(const std::optional<Rendezvous>& rendezvous) : Processes(rendezvous, Timing{}) {}
  Processes(const std::optional<Rendezvous>& rendezvous, const Timing& timing, LastResort last_resort = {});
  /// Waits a little until all are done, unless an exception is on its way.
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  /// Whether this process has met the others, or has tried to.
  static bool have_met();

  int rank() const { return rendezvous_.rank; }
  int world() const { return rendezvous_.world; }
  int local_rank() const { return rendezvous_.local_rank; }
  const Rendezvous& rendezvous() const { return rendezvous_; }
  /// Whether tensors travel at all.
  bool several() const { return peers_ != nullptr; }
  /// Whether this is the one that writes files and talks.
  bool main() const { return rank() == 0; }

  /// From here on tensors of GPUs travel through the host's memory, by Gloo: for processes that share a GPU,
  /// which NCCL refuses. Calls on them then wait.
  void carry_gpu_through_host() { through_host_ = true; }
  /// Whether calls on tensors of a GPU can be captured in a graph.
  bool capturable() const { return !through_host_; }

  /// Adds up each tensor over all processes, in place and in its own dtype; the same bits everywhere. Small
  /// ones travel together. All have the same shapes and dtypes in every process.
  void sum_(at::TensorList tensors);
  double sum(double value);
  int64_t sum(int64_t value);
  /// Whether it is true in any process.
  bool any(bool value) { return world() == 1 ? value : sum(int64_t{value}) > 0; }

  /// The collectives on one dense tensor each, in its own dtype: they start at once, several may be under
  /// way, and `collective(...).wait()` is one that blocks. Sizes are the same in every process, and `parts`
  /// is `world()` times as large as `part`: whoever has a size that does not divide pads it, for a remainder
  /// that some processes have and others do not would be everybody's special case. `part` may be our own
  /// piece of `parts`.

  /// Adds up `tensor` over all processes, in place; the same bits everywhere.
  Pending all_reduce(const at::Tensor& tensor);
  /// `part` becomes our piece, the rank-th, of the sum of `parts` over all processes. `parts` keeps its
  /// values, save for `part` within it.
  Pending reduce_scatter(const at::Tensor& part, const at::Tensor& parts);
  /// `parts` becomes the processes' `part`s, by rank.
  Pending all_gather(const at::Tensor& parts, const at::Tensor& part);
  /// In `root`, `tensor` becomes its sum over all processes. In the others it may hold anything.
  Pending reduce(const at::Tensor& tensor, int root);
  /// `tensor` becomes that of `root`.
  Pending start_broadcast(const at::Tensor& tensor, int root);
  /// In the main process, the processes' `part`s by rank (world, size); undefined in the others. Dense CPU
  /// tensors of the same size and dtype.
  at::Tensor gather(const at::Tensor& part);

  /// Replaces the tensor's values by those of `root`, dense or not.
  void broadcast(const at::Tensor& tensor, int root = 0);
  /// The text of `root`, in every process.
  std::string broadcast_text(const std::string& text, int root = 0);
  /// The value of `root`. Where that fails it warns and gives our own: for numbers that only inform.
  double broadcast_value(double value, int root = 0);

  /// A text that every process can read from here on, once under a name. From any thread: for what is agreed
  /// on beside the training.
  void post(const std::string& name, const std::string& text);
  /// Waits for one. Throws where a peer is dead. On a thread beside the one that trains.
  std::string posted(const std::string& name);
  void remove_post(const std::string& name);

  /// Waits until all have come here.
  void barrier();
  /// Throws where a peer is dead; waits for nothing.
  void check();

  /// Tells the others that this process ends because of `error`, and gives what it is to end with itself: the
  /// error of the process that failed first, with its rank and host, which all of them say.
  Error fail(const std::exception& error);
  /// The same for an error that all find, in the same words.
  Error fail_together(const Error& error);
  /// "rank 1 of 4 (host b)".
  std::string name(int rank) const;

  /// While one lives, the LastResort is not used: for work that is worth more than a quick end, such as a
  /// save.
  class Unhurried {
   public:
    explicit Unhurried(Processes& processes);
    ~Unhurried();
    Unhurried(const Unhurried&) = delete;
    Unhurried& operator=(const Unhurried&) = delete;

   private:
    const std::shared_ptr<Peers> peers_;
  };

  /// The texts of all, by rank.
  std::vector<std::string> gather(const std::string& text);
  /// Seconds of its own work that a step takes this process; those of all, by rank, as they last told (0: not
  /// yet). Neither waits for anybody.
  void tell_pace(double seconds);
  std::vector<double> paces();

 private:
  bool by_host(const at::Tensor& tensor) const;

  Rendezvous rendezvous_;
  bool through_host_ = false;
  std::shared_ptr<Peers> peers_;  // null when alone; a Pending holds it weakly
};

}  // namespace tightloop
