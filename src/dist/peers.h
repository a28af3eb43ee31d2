#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/terminal/progress_line.h"
#include "dist/board.h"
#include "dist/heartbeat.h"
#include "dist/meeting_place.h"
#include "dist/process_group.h"
#include "dist/processes.h"
#include "dist/rendezvous.h"

namespace tightloop {

using Work = c10::intrusive_ptr<c10d::Work>;

/// The other processes, as they can be reached: c10d's groups, and the heartbeat that says who is gone. Calls
/// may come from any thread: collectives also start from within autograd's.
class Peers {
 public:
  Peers(const Rendezvous& rendezvous, const Processes::Timing& timing, LastResort last_resort);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  /// Throws where one is gone.
  void check();
  /// The same for threads beside the one that trains, which may not have noticed yet and is not spared the
  /// LastResort.
  void check_aside();
  /// Who carries such a tensor: Gloo, or the CUDA plug-in's NCCL.
  c10d::Backend& group_of(const at::Tensor& tensor);
  /// On the CPU the host waits, on a GPU the current stream does.
  void wait(const Work& work, const at::Tensor& tensor);

  /// Texts that processes leave for each other.
  Board& board() { return *board_; }

  /// What this process ends with because of an error of its own: that, or what another failed with before.
  Error fail(const Error& own);
  /// The same for an error that all find, in the same words.
  Error fail_together(const Error& common);
  /// Of Processes::Unhurried.
  void hold_last_resort(int more) { holds_ += more; }
  std::string name(int rank) const { return heartbeat_->peers().name(rank); }
  Heartbeat& heartbeat() { return *heartbeat_; }

 private:
  Store connect(const Processes::Timing& timing, bool serve) const;
  Store named(const std::string& name) const;
  /// Where the store has been of others before.
  void find_place(const Processes::Timing& timing);
  void join(const Processes::Timing& timing);
  Error not_arrived(int rank, const Processes::Timing& timing) const;
  /// While there is no heartbeat yet.
  Error fail_to_join(c10d::Store& store, const Error& own) const;
  bool serves() const { return !rendezvous_.store_runs && rendezvous_.rank == 0; }
  /// By the ticker: frees the host from GPU work that waits for a dead peer, and ends the program where the
  /// host does not come to notice.
  void look();
  Error failure(const Fault& fault);
  /// Says goodbye; afterwards this object can be destroyed.
  void part(bool failing);

  const Rendezvous rendezvous_;
  std::string prefix_;
  std::optional<MeetingPlace> place_;
  const int exceptions_;  // under way when this was made
  const LastResort last_resort_;
  std::atomic<int> holds_ = 0;
  std::atomic<bool> failed_ = false;                           // this process knows why it ends
  std::optional<std::chrono::steady_clock::time_point> seen_;  // when the ticker saw the fault
  Store store_;
  ProcessGroup gloo_;
  std::mutex gpu_mutex_;
  ProcessGroup gpu_;
  std::unique_ptr<Heartbeat> heartbeat_;
  std::unique_ptr<Board> board_;
  std::optional<Ticker> ticker_;  // last: its thread uses the others
};

}  // namespace tightloop
