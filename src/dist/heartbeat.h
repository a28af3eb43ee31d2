#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dist/fault.h"
#include "dist/process_group.h"

namespace tightloop {

/// Processes::Timing has the numbers.
struct HeartbeatTiming {
  std::chrono::milliseconds beat;
  int missed;  // beats in a row without which a peer counts as dead
};

/// Who the heartbeat is between.
struct HeartbeatPeers {
  int rank = 0;
  std::vector<std::string> hosts;  // by rank
  int holder = 0;                  // the rank that serves the store; Fault::kAll: the launcher does

  int world() const { return static_cast<int>(hosts.size()); }
  /// "rank 1 of 4 (host b)".
  std::string name(int which) const;
};

/// Tells a peer that is dead from one that is busy: every process counts up a number in the store, from a
/// thread of its own, and watches the others' numbers. Where one fails or falls silent, all learn the same
/// Fault: the first that was written into the store.
///
/// Every call may come from any thread.
class Heartbeat {
 public:
  /// Writes what others expect to find of this rank in the store. How often the rank has been introduced.
  static int64_t introduce(c10d::Store& store, int rank, const std::string& host);
  /// Waits for another's; false: it has not come within the limit.
  static bool wait_for(c10d::Store& store, int rank, std::chrono::milliseconds limit);
  static std::vector<std::string> hosts(c10d::Store& store, int world);
  /// The store's fault, once it is `proposed`: that one, or the one before it. Without a proposal, the one
  /// that is there, if any.
  static std::optional<Fault> decide(c10d::Store& store, const std::optional<Fault>& proposed);

  /// `store` is a connection of this object's own; all have been introduced there.
  Heartbeat(Store store, HeartbeatPeers peers, const HeartbeatTiming& timing);
  /// After stop() has succeeded.
  ~Heartbeat();

  const HeartbeatPeers& peers() const { return peers_; }

  /// What all end with; nothing while all are there. Asked several times a second.
  std::optional<Fault> fault();
  /// After a call has failed: looks for a few beats who it may have been.
  std::optional<Fault> find_fault();
  /// Proposes a fault; gives the one that counts.
  Fault fail(const Fault& proposed);
  /// A fault of that rank, with its name before what is said.
  Fault fault_of(int rank, ExitCode code, const std::string& said) const;

  /// Tells the others that this process is done and waits, for a while, until all are.
  void finish();
  /// Where the store is ours, it stays until the others have read the fault in it, or for a while.
  void wait_until_heard();
  /// False where the thread hangs in a store that does not answer: then this object must be left alone.
  bool stop();

  /// Seconds of its own work that a step takes this process, for the others to see; by rank, as last told
  /// (0: not yet).
  void tell_pace(double seconds);
  std::vector<double> paces();

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  /// Publishes our sign of life and reads those of the others.
  void round();
  /// What the signs say; by the mutex.
  std::optional<Fault> judge(const std::vector<std::string>& signs);
  Fault silent(int rank) const;
  /// By the mutex.
  void note(const std::optional<Fault>& fault);
  bool hangs() const;
  void leave_out_stop();
  size_t size() const { return peers_.hosts.size(); }

  const Store store_;
  const HeartbeatPeers peers_;
  const HeartbeatTiming timing_;
  const std::vector<std::string> keys_;  // signs of life, paces, the fault

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> signs_;  // as last read
  std::vector<int> missed_;         // beats since each changed
  std::vector<double> paces_;
  std::optional<Fault> fault_, proposed_;
  std::string pace_;  // to be told
  bool done_ = false, hurry_ = false, stopping_ = false, stopped_ = false;
  int64_t rounds_ = 0, beats_ = 0;
  Clock::time_point last_round_ = Clock::now(), counted_ = last_round_, asked_ = last_round_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace tightloop
