#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/syncs.h"
#include "dist/processes.h"
#include "train/engine/loss.h"
#include "train/engine/loss_buffer.h"
#include "train/optim/optimizer.h"

namespace tightloop {

class DeviceSpikeFilter;
class Feed;

struct EngineOptions {
  bool graphs = false;  // capture and replay, where the device can
  bool time = true;     // parts of the step are timed, on the device
  bool global = true;   // train.loss_norm
  bool forbid_syncs = false;
  bool overlap = true;          // dist.overlap
  bool waits_by_block = false;  // the model asks for the weights of each block (Parameters::need_block)
  DeviceSpikeFilter* spikes = nullptr;  // leaves out the updates of steps whose losses are spikes
  /// Asked where the device has no memory left: waits until what is there for a while alone (a copy that is
  /// being saved) is gone, and says whether there was any.
  std::function<bool()> make_room{};
};

/// How often what happened.
struct GraphCounts {
  int64_t captured = 0, replayed = 0, eager = 0;
};

/// One training step, as work for the device that the host starts and does not wait for: forward, loss and
/// backward of each micro-batch, what they add up to, and the update. On a GPU each kind of pass (by shape,
/// by whether it starts or ends a step) is captured as a graph the second time it comes up, and replayed from
/// then on; the update rides with the last micro-batch.
class StepEngine {
 public:
  /// The loss of a micro-batch from its arrays. `scale` (fp64 scalar) multiplies its gradient; `metrics`: the
  /// sums by source and the correct tokens are wanted.
  using Objective =
      std::function<BatchLoss(const std::vector<at::Tensor>& parts, const at::Tensor& scale, bool metrics)>;

  StepEngine(Device& device, Optimizer& optimizer, LossBuffer& buffer, Objective objective,
             Processes& processes, const EngineOptions& options);
  ~StepEngine();
  StepEngine(const StepEngine&) = delete;
  StepEngine& operator=(const StepEngine&) = delete;

  /// Starts the work on the feed's next micro-batch, the `first` or `last` of a step, and tells which it was.
  /// `by_layer`: the update fills in LossBuffer::layer_norms().
  const Staged& pass(Feed& feed, bool first, bool last, bool metrics, bool by_layer = false);
  /// Whether passes from here on count their floating point operations.
  void count_flops(bool on) { counting_ = on; }
  /// Forward and backward of the last pass. 0 where they were not counted, or where a graph was replayed,
  /// which has no operators to look at.
  double flops() const { return flops_; }
  /// The time until now belongs to no step: after evaluating or saving.
  void restart_clock();

  const GraphCounts& graphs() const { return counts_; }
  Syncs& syncs() { return syncs_; }

 private:
  struct PassKey {
    BufferLayout layout;
    bool first, last, metrics, by_layer;
    auto operator<=>(const PassKey&) const = default;
  };
  struct PassState {
    bool warm = false;
    std::unique_ptr<Graph> graph;
  };

  void compute(const PassKey& key, const at::Tensor& buffer);
  void compute_or_retry(const PassKey& key, const at::Tensor& buffer, bool warm);
  void differentiate(const PassKey& key, const std::vector<at::Tensor>& parts, bool overlap);
  void begin_weights(const PassKey& key);
  void begin_weights(bool by_block);
  void end_backward();
  template <class Work, class Undo>
  void retry(Work&& work, Undo&& undo);
  /// The same of what the other processes take part in, and is done once.
  template <class Work>
  void retry_alone(Work&& work);
  bool try_capture(const PassKey& key, const at::Tensor& buffer, PassState& state);
  bool make_room() const { return options_.make_room && options_.make_room(); }
  void record(const BatchLoss& loss, const at::Tensor& numbers);
  void update(const at::Tensor& numbers, bool by_layer);
  void apply_update(const at::Tensor& numbers, bool by_layer);
  at::Tensor layer_norms(bool wanted) const { return wanted ? buffer_.layer_norms() : at::Tensor(); }
  void record_update();
  void lap(LossBuffer::Column part);
  /// Waiting for other processes is no part of a pass's own work.
  void lap_wait(bool begins);

  Device& device_;
  Optimizer& optimizer_;
  LossBuffer& buffer_;
  const Objective objective_;
  Processes& processes_;
  EngineOptions options_;
  const bool apart_;  // what processes do together is no part of a captured graph
  std::map<BufferLayout, at::Tensor> buffers_;
  std::map<PassKey, PassState> passes_;
  std::optional<LossBuffer::Column> at_work_;  // the part of a pass in which others may be waited for
  at::Tensor source_numbers_;                  // 0, 1, 2, ... as a column
  bool counting_ = false;
  double flops_ = 0;
  GraphCounts counts_;
  Syncs syncs_;
};

}  // namespace tightloop
