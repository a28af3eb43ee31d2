#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "core/syncs.h"

namespace c10 {
struct Event;
}

namespace tightloop {

class Processes;

/// What a step came to, as the host learns it later.
struct StepSums {
  int64_t step = 0;
  std::vector<double> values;  // LossBuffer::kColumns numbers
  std::vector<double> source_loss, source_tokens, source_correct;
  std::vector<double> expert_loads;                   // by layer, then expert: sums over micro-batches
  std::vector<double> grad_norms{}, update_ratios{};  // by layer; see Optimizer::update

  double operator[](int column) const { return values[column]; }
};

/// Sums of the steps behind us, on the device, until somebody looks: a row of fp64 numbers a step. The host
/// only ever asks for all new rows at once, in one asynchronous copy to pinned memory. Averages are made on
/// the host from rows, in step order, so they do not depend on how often one looks.
///
///     LossBuffer buffer(device, 10, 1);
///     for (step ...) {
///       buffer.row().narrow(0, LossBuffer::kLoss, 1).add_(loss);   // on the device, nothing waits
///       buffer.finish(step);
///       if (step % 10 == 0) buffer.extract(syncs);
///       for (const StepSums& sums : buffer.arrived()) ...
///     }
class LossBuffer {
 public:
  enum Column {
    kLoss,     // sums over supervised tokens
    kTokens,   // supervised ones
    kBytes,    // of text in those; 0: not known
    kCorrect,  // of which the largest logit was right; on metric steps alone
    kPasses,   // micro-batches
    kBalance,  // sum over micro-batches of the experts' balance loss
    kSums,     // columns up to here add up over processes
    kGradNorm = kSums,
    kSkipped,    // not 0: nothing was updated: gradients were not finite, there were none, or a spike
    kSpike,      // not 0: the update was left out because the mean loss was above this limit
    kLossScale,  // of fp16, as the step used it
    // Seconds of the device, one after the other: they add up to the step's.
    kIdle,           // from the end of the step before until the host had started this one
    kData,           // waiting for the micro-batch to arrive
    kForward,        // with the loss
    kBackward,       // with the adding up of gradients
    kCommunication,  // the adding up over processes, where there are several
    kUpdate,
    kClock,  // when the last part ended; stays from step to step
    kColumns
  };

  /// Room for `interval` steps between two extractions.
  LossBuffer(at::Device device, int64_t interval, int64_t sources, int64_t expert_loads = 0,
             int64_t layers = 0);
  ~LossBuffer();

  /// The row of the step being done, fp64: always the same memory, zero at first, so that a captured graph
  /// may add to it. After the columns come loss, tokens and correct by source, then the experts' loads, then
  /// norms by layer; all but the last add up over processes.
  const at::Tensor& row() const { return row_; }
  /// Parts of it: a column (a scalar), the sums by source (3, sources), the loads, the norms (2, layers).
  at::Tensor column(Column column) const { return row_[column]; }
  at::Tensor by_source() const { return row_.narrow(0, kColumns, 3 * sources_).view({3, sources_}); }
  at::Tensor expert_loads() const { return row_.narrow(0, kColumns + 3 * sources_, loads_); }
  at::Tensor layer_norms() const {
    return row_.narrow(0, kColumns + 3 * sources_ + loads_, 2 * layers_).view({2, layers_});
  }

  /// Ends a step: its row is put away and starts again from zero.
  void finish(int64_t step);
  /// Whether all rows are taken: extract() before the next finish().
  bool full() const { return static_cast<int64_t>(steps_.size()) == ring_.size(0); }
  /// Starts the copy of all new rows, added up over the processes where there are several; counts one sync of
  /// cause "loss_extract". Nothing where there are none.
  void extract(Syncs& syncs, Processes* processes = nullptr);
  /// Steps whose copies are there, oldest first. Waits until at most `outstanding` copies are missing. With
  /// `exactly` so many are left for later, there or not: how fast a copy was differs between processes, which
  /// must see the same steps in the same call.
  std::vector<StepSums> arrived(size_t outstanding = std::numeric_limits<size_t>::max(),
                                bool exactly = false);

 private:
  /// The rows not yet extracted, on the device.
  at::Tensor waiting() const { return ring_.narrow(0, 0, static_cast<int64_t>(steps_.size())); }

  struct Copy {
    std::vector<int64_t> steps;
    at::Tensor rows;  // pinned where the device is a GPU
    std::unique_ptr<c10::Event> done;
  };

  int64_t sources_, loads_, layers_;
  at::Tensor row_, ring_;
  std::vector<int64_t> steps_;  // of the rows put away and not yet extracted
  std::deque<Copy> copies_;
};

}  // namespace tightloop
