#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "dist/processes.h"
#include "train/optim/gradient_buckets.h"

namespace tightloop {

/// Brings the gradients that backward leaves at the parameters into GradientBuckets and, where there are
/// several processes, adds them up over these: a bucket starts to travel as soon as backward has made the
/// last gradient that is in it, while backward goes on.
///
///     exchange.begin(first);    // a pass whose gradients travel while it runs
///     objective.backward();
///     exchange.collect(first);  // those that backward did not reach, and all of a pass without begin()
///     exchange.finish();        // sums over all processes are in GradientBuckets::own()
///
/// Of micro-batches that only add up, collect() and drop() is all. Buckets travel in one order, whatever
/// order gradients come in, so that a process may begin() while another does not.
class GradientExchange {
 public:
  /// `processes`: null for one that is alone. `set_to_none`: what becomes of a gradient that was taken.
  GradientExchange(std::vector<at::Tensor> parameters, GradientBuckets& buckets, Processes* processes,
                   bool set_to_none);
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  /// See Optimizer::watch_waits.
  void watch_waits(std::function<void(bool begins)> around) { around_wait_ = std::move(around); }

  /// `first`: of the micro-batches that add up.
  void begin(bool first);
  void collect(bool first);
  void finish();
  /// Whether a call that threw had begun to change sums: the pass cannot be made again.
  bool touched() const { return touched_; }
  /// Ends a pass whose gradients do not travel, or that did not come to its end.
  void drop();

 private:
  struct Hook;
  void reset();
  void collect_all(bool first);
  void take(size_t parameter, bool first);
  void start_complete();
  void start(size_t bucket);
  void clear(size_t parameter);

  /// Buckets under way at most, where each needs memory of its own.
  static constexpr size_t kUnderWay = 2;

  const std::vector<at::Tensor> parameters_;
  GradientBuckets& buckets_;
  Processes* const processes_;
  const bool set_to_none_;
  const bool keeps_own_;                         // GradientBuckets::Keep::kOwn
  std::vector<std::vector<size_t>> buckets_of_;  // by parameter
  // Of the pass at work. Autograd has threads of its own for GPUs.
  std::mutex mutex_;
  bool active_ = false, first_ = false, touched_ = false;
  std::vector<bool> taken_;
  std::vector<size_t> missing_;  // parameters, by bucket
  size_t next_ = 0;              // bucket to travel
  std::deque<Pending> under_way_;
  std::function<void(bool begins)> around_wait_;
};

}  // namespace tightloop
