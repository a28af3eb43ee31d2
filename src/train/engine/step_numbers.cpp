#include "train/engine/step_numbers.h"

namespace tightloop {

std::vector<double> step_numbers(const TrainConfig& config, const Rates& rates, int64_t supervised,
                                 int64_t bytes, double unit) {
  const auto tokens = static_cast<double>(supervised), passes = static_cast<double>(config.accumulate);
  const bool global = config.loss_norm == LossNorm::kGlobal;
  std::vector<double> numbers(StepNumbers::kSize);
  numbers[StepNumbers::kTokens] = tokens;
  numbers[StepNumbers::kBytes] = static_cast<double>(bytes);
  numbers[StepNumbers::kUnit] = unit;
  numbers[StepNumbers::kLossWeight] = global ? unit : tokens > 0 ? 1 / (tokens * passes) : 0;
  numbers[StepNumbers::kBalanceWeight] = global ? tokens * unit : tokens > 0 ? 1 / passes : 0;
  numbers[StepNumbers::kLrScale] = rates.lr_scale;
  numbers[StepNumbers::kDecayScale] = rates.decay_scale;
  numbers[StepNumbers::kMomentum] = rates.momentum;
  return numbers;
}

}  // namespace tightloop
