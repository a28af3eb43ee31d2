#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/files/safetensors.h"
#include "model/model_config.h"
#include "model/parts/parameters.h"
#include "train/dist_config.h"
#include "train/engine/grad_scaler.h"
#include "train/optim/layer_norms.h"
#include "train/optim/schedule.h"
#include "train/train_config.h"

namespace tightloop {

class GradientBuckets;
class GradientExchange;
class Processes;
class ShardPlan;
class WeightGather;
struct OwnWeights;
struct StateSlice;

/// How a group of parameters is updated. What it keeps is allocated at the start and changed in place.
class UpdateRule {
 public:
  /// `group`: what is updated, for people; its learning rate at a scale of 1.
  UpdateRule(std::string group, double lr) : group_(std::move(group)), lr_(lr) {}
  virtual ~UpdateRule() = default;
  const std::string& group() const { return group_; }
  double lr() const { return lr_; }
  /// One update, of the fp32 masters and of the values that the model reads. `gradients` are those of all
  /// parameters, fp32 or in the compute dtype, still to be divided as `control` (ops::MuonControl, on the
  /// device) says; its rate is a scale of each group's. `change`, where there is one, watches the masters;
  /// it changes no bit of the update.
  virtual void update(const std::vector<at::Tensor>& gradients, const at::Tensor& control,
                      WeightChange* change) = 0;
  /// Takes the memory that an update works in and leaves it to the allocator, which then has it for the
  /// update: out of memory shows here, before anything is changed.
  virtual void reserve() const {}
  /// The tensors themselves, by names that depend neither on the grouping nor on who has them.
  virtual std::vector<StateSlice> state() const = 0;

 private:
  const std::string group_;
  const double lr_;
};

/// Who an optimizer shares its work with.
struct OptimizerSharing {
  Processes* processes = nullptr;  // null, or one process: nobody
  DistConfig dist{};
};

/// Updates fp32 masters, whatever dtype the model computes in, by AdamW or by Muon and AdamW
/// (train.optimizer). It is given the parameters in fp32 and keeps those as masters; the model goes on with
/// copies in the compute dtype (with the masters themselves where that is fp32).
///
/// Gradients arrive as sums over tokens; an update divides once by the step's token count, clips, and changes
/// the weights, all on the device: the host learns nothing and waits for nothing, and every number that
/// changes from step to step is read from the device, so that an update can be captured and replayed.
///
/// Of several processes each updates everything, from gradients that were added up over all; or, with
/// dist.shard, a part, of which it alone has masters and moments, and begin_weights() brings the others'.
class Optimizer {
 public:
  Optimizer(Parameters& parameters, const TrainConfig& config, const ModelConfig& model,
            at::ScalarType compute_dtype, const OptimizerSharing& sharing = {});
  ~Optimizer();

  /// Where a micro-batch is in its step.
  struct Place {
    bool first = true, last = true;
  };
  /// Before the forward pass of a step's first micro-batch: starts to bring the weights that other processes
  /// have updated. With `by_block` those of a block are waited for where it begins (Parameters::need_block);
  /// else all are there after the call.
  void begin_weights(bool by_block);
  /// Called around whatever waits for other processes: true before, false after. Within passes, also by
  /// threads of autograd, one at a time.
  using AroundWait = std::function<void(bool begins)>;
  void watch_waits(const AroundWait& around);
  /// Before backward, where gradients are to travel to the other processes while it runs. Not having called
  /// it changes no result.
  void begin_gradients(const Place& place);
  /// After backward: takes the gradients of one micro-batch from the parameters: as they are where
  /// train.accumulate is 1 and the process is alone, and added up in fp32 otherwise.
  void accumulate(const Place& place);
  /// After a step's last micro-batch: gradients are added up over all processes.
  void finish_gradients();
  /// What was accumulated, and is used by update(): in the order of the parameters where nothing is sharded.
  const std::vector<at::Tensor>& gradients() const { return gradients_; }
  /// All weights are as the last update left them: before they are used outside of steps. Every process calls
  /// it at the same step.
  void refresh_weights();
  /// One update. `rates` (fp64, on the device) are StepNumbers; gradients are divided by the fp64 scalar
  /// `divisor`: the step's supervised tokens, over all processes. 0, or a gradient that is not finite, leaves
  /// everything as it was. So does `leave_out` (a bool scalar on the device), where it is given and true.
  /// `layer_norms` (fp64 (2, layers), on the device), where it is defined, gets the norm of each layer's
  /// divided gradient before clipping, and that of its update over that of its weights.
  void update(const at::Tensor& rates, const at::Tensor& divisor, const at::Tensor& layer_norms = {},
              const at::Tensor& leave_out = {});
  /// The same for numbers of the host. Gives norm().
  at::Tensor step(const Rates& rates, double divisor);

  /// Of the last update, scalars on the device: the norm of the divided gradient before clipping, and whether
  /// it was left out.
  const at::Tensor& norm() const { return norm_; }
  const at::Tensor& skipped() const { return skipped_; }
  const Layers& layers() const { return layers_; }
  /// fp16's, else null.
  const GradScaler* scaler() const { return scaler_.get(); }

  /// The learning rate to show for a scale: of all parameters, or of the matrices (muon).
  double lr(const Rates& rates) const { return lr_ * rates.lr_scale; }
  /// Those of the groups, by name, where there are several.
  std::map<std::string, double> group_lrs(const Rates& rates) const;

  /// Whether a pass's gradients can be collected by a graph that is replayed, and exchanged after it.
  bool exchanges_after_replay() const { return !shards_gradients_; }
  /// A capture failed: what it had begun to bring does not come.
  void drop_capture();
  /// Whether other processes have parts of what is below.
  bool sharded() const { return gather_ != nullptr; }
  /// Weights (fp32) by the model's names; moments, the step count, and the scaler's state where there is one.
  /// What this process has of them.
  std::vector<StateSlice> weight_slices() const;
  std::vector<StateSlice> state_slices() const;
  /// The whole of it, in the main process; every process calls it where it is sharded. Where it is not, the
  /// tensors themselves.
  NamedTensors weights() const;
  NamedTensors state() const;
  /// Puts both back, and the model's compute copies with them.
  void load(const Safetensors& weights, const Safetensors& state);
  /// The state alone: of another run of the same parameters.
  void load_state(const Safetensors& state);
  /// Forgets gradients of a micro-batch that did not come to its end, or whose capture failed: then nothing
  /// of it has run. Memory that captured graphs write to stays.
  void drop_gradients();
  /// Whether an exception left backward, accumulate() or update() after sums or weights had begun to change.
  /// Until then they can be called again.
  bool halfway() const;

 private:
  ShardPlan plan(const TrainConfig& config, const DistConfig& dist, at::ScalarType compute_dtype) const;
  void take_all(at::ScalarType compute_dtype);
  void take_shard(const ShardPlan& plan, at::ScalarType compute_dtype);
  NamedTensors whole(const std::vector<StateSlice>& slices) const;
  /// fp32 scalar to fp64, the sums of squares of all processes where each has a part.
  at::Tensor whole_norm(const at::Tensor& own) const;
  void sum_over_shards(const at::Tensor& squares) const;
  void clear_gradients();  // of the parameters
  void publish();          // masters -> the model's compute dtype

  Parameters& parameters_;
  const double clip_;
  const bool several_, set_to_none_;
  Processes* const processes_;  // null: this one alone
  const bool shards_gradients_;
  const Layers layers_;
  double lr_;
  bool halfway_ = false;
  std::vector<at::Tensor> values_, gradients_;
  std::unique_ptr<OwnWeights> own_;
  std::unique_ptr<const Layers> own_layers_;
  std::unique_ptr<GradientBuckets> buckets_;  // where gradients add up; none: as backward makes them
  std::unique_ptr<GradientExchange> exchange_;
  std::unique_ptr<WeightGather> gather_;  // where the state is sharded
  std::vector<std::unique_ptr<UpdateRule>> rules_;
  std::unique_ptr<GradScaler> scaler_;
  at::Tensor count_;  // updates made, fp32 scalar on the device
  at::Tensor norm_, skipped_;
};

/// Copies weights by name into parameters of any dtype and device. A missing, unknown or differently shaped
/// tensor is a checkpoint error that names it and `file`.
void load_weights(Parameters& parameters, const Safetensors& weights, const std::string& file);

}  // namespace tightloop
