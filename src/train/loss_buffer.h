#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "core/syncs.h"

namespace c10 {
struct Event;
}

namespace tightloop {

/// What a step came to, as the host learns it later.
struct StepSums {
  int64_t step = 0;
  double loss = 0, tokens = 0, correct = 0;  // sums over supervised tokens
  double balance = 0;                        // mean over micro-batches; 0 without experts
  double grad_norm = 0;
  bool skipped = false;  // gradients were not finite, nothing was updated
  std::vector<double> source_loss, source_tokens;
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
  enum Column { kLoss, kTokens, kCorrect, kBalance, kGradNorm, kSkipped, kColumns };

  /// Room for `interval` steps between two extractions; a step more extracts by itself.
  LossBuffer(at::Device device, int64_t interval, int64_t sources);
  ~LossBuffer();

  /// The row of the step being done, fp64 (kColumns + 2 * sources): always the same memory, zero at first, so
  /// that a captured graph may add to it. After the columns: loss, then tokens, by source.
  const at::Tensor& row() const { return row_; }
  /// Ends a step: its row is put away and starts again from zero.
  void finish(int64_t step);
  /// Whether all rows are taken: extract() before the next finish().
  bool full() const { return static_cast<int64_t>(steps_.size()) == ring_.size(0); }
  /// Starts the copy of all new rows; counts one sync of cause "loss_extract". Nothing where there are none.
  void extract(Syncs& syncs);
  /// Steps whose copies are there, oldest first. With `wait`, all that were extracted.
  std::vector<StepSums> arrived(bool wait = false);

 private:
  struct Copy {
    std::vector<int64_t> steps;
    at::Tensor rows;  // pinned where the device is a GPU
    std::unique_ptr<c10::Event> done;
  };

  int64_t sources_;
  at::Tensor row_, ring_;
  std::vector<int64_t> steps_;  // of the rows put away and not yet extracted
  std::deque<Copy> copies_;
};

}  // namespace tightloop
