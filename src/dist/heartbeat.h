#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dist/process_group.h"

namespace tightloop {

/// Processes::Timing has the numbers.
struct HeartbeatTiming {
  std::chrono::milliseconds beat;
  int missed;  // beats in a row without which a peer counts as dead
};

/// Tells a peer that is dead from one that is busy: every process counts up a number in the store, from a
/// thread of its own, and watches the others' numbers.
class Heartbeat {
 public:
  /// Where a process's number is in the store.
  static std::string key(int rank);

  /// `store` is a connection of this object's own, with everybody's key in it. `holder`, for sentences, is
  /// who serves it. `lost` is called once, by the thread, when somebody is gone.
  Heartbeat(Store store, int rank, int world, const HeartbeatTiming& timing, std::string holder,
            std::function<void()> lost);
  /// After stop() has succeeded.
  ~Heartbeat();

  /// Who is gone ("rank 1 does not answer ..."); empty while all are there.
  std::string loss();
  /// After a call has failed: looks for a few beats who it may have been. May be empty.
  std::string find_loss();

  /// Tells the others that this process ends because of an error.
  void fail();
  /// Tells the others that this process is done and waits, for a while, until all are.
  void finish();
  /// False where the thread hangs in a store that does not answer: then this object must be left alone.
  bool stop();

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  /// Publishes our sign of life and reads those of the others.
  void round();
  void note(const std::string& loss);
  void say(const std::string& word);

  const Store store_;
  const int rank_, world_;
  const HeartbeatTiming timing_;
  const std::string holder_;
  const std::function<void()> lost_;
  const std::vector<std::string> keys_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> signs_;  // as last read
  std::vector<int> missed_;         // rounds since each changed
  std::string loss_, word_;
  int64_t rounds_ = 0;
  Clock::time_point last_round_ = Clock::now(), counted_ = Clock::now();
  bool hurry_ = false, stopping_ = false, stopped_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace tightloop
