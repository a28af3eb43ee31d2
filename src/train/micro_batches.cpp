#include "train/micro_batches.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include <deque>

namespace tightloop {

double accumulate_step(LanguageModel& model, Optimizer& optimizer, const TrainConfig& config,
                       const std::function<MicroBatch()>& next,
                       const std::function<void(const MicroBatch&, const BatchLoss&)>& seen) {
  const bool global = config.loss_norm == "global";
  LossSetup setup{.training = true,
                  .label_smoothing = config.label_smoothing,
                  .z_loss = config.z_loss,
                  .fused_head = config.fused_head};
  std::deque<MicroBatch> ahead;
  int64_t supervised = 0, useful = 0, left = config.accumulate;
  const auto take = [&] {
    --left;
    ahead.push_back(next());
    supervised += ahead.back().supervised;
    if (ahead.back().supervised > 0) ++useful;
  };
  while (left > 0 || !ahead.empty()) {
    if (ahead.empty()) take();
    const MicroBatch micro = std::move(ahead.front());
    ahead.pop_front();
    if (micro.supervised == 0) continue;
    const auto share = 1 / static_cast<double>(config.accumulate);
    if (!global) {
      const auto weight = model.head().weight_VD;
      const auto dtype = weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      setup.scale =
          at::full({}, share / static_cast<double>(micro.supervised), weight.options().dtype(dtype));
    }
    const BatchLoss loss = loss_of(model, micro.batch, setup);
    at::Tensor objective = loss.objective;
    if (!global) {
      if (loss.balance.defined()) objective = objective + loss.balance * share;
    } else if (loss.balance.defined()) {
      // The division by all supervised tokens comes later, for both terms: what is ahead must be known now.
      while (left > 0) take();
      objective = objective + loss.balance * (static_cast<double>(supervised) / static_cast<double>(useful));
    }
    objective.backward();
    optimizer.accumulate();
    seen(micro, loss);
  }
  if (supervised == 0) return 0;
  return global ? static_cast<double>(supervised) : 1;
}

}  // namespace tightloop
