#include "train/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tightloop {

namespace {

double half_cosine(double progress) { return 0.5 * (1 + std::cos(std::numbers::pi * progress)); }

// Steps of the last stretch, rounded half to even.
double decay_steps(const TrainConfig& config) {
  return std::nearbyint(config.decay_fraction * static_cast<double>(config.steps));
}

double lr_scale_at(const TrainConfig& config, int64_t step, int64_t width) {
  const auto s = static_cast<double>(step), steps = static_cast<double>(config.steps),
             warmup = static_cast<double>(config.warmup_steps);
  const bool warming = step <= config.warmup_steps;
  const double progress = std::min(1.0, (s - warmup) / std::max(1.0, steps - warmup));
  const auto falling = [&](double left) { return config.min_lr + (1 - config.min_lr) * left; };
  switch (config.schedule) {
    case ScheduleKind::kMinimind: {
      // The rate of the micro-batch that ends the step, of all micro-batches, counted from 1.
      const auto passes = static_cast<double>(config.accumulate);
      return 0.1 + 0.45 * (1 + std::cos(std::numbers::pi * (s * passes) / (steps * passes)));
    }
    case ScheduleKind::kNoam: {
      const double rising = warmup > 0 ? s * std::pow(warmup, -1.5) : INFINITY;
      return std::pow(static_cast<double>(width), -0.5) * std::min(std::pow(s, -0.5), rising);
    }
    case ScheduleKind::kConstant:
      return warming ? s / warmup : 1;
    case ScheduleKind::kInverseSqrt:
      return warming ? s / warmup : std::sqrt(std::max(1.0, warmup) / s);
    case ScheduleKind::kWsd: {
      const double decay = decay_steps(config), left = steps - (s - 1);
      return warming ? s / warmup : left >= decay ? 1 : falling(left / decay);
    }
    case ScheduleKind::kLinear:
      return warming ? s / warmup : falling(1 - progress);
    case ScheduleKind::kCosine:
      return warming ? s / warmup : falling(half_cosine(progress));
  }
  return 1;
}

double momentum_at(const TrainConfig& config, int64_t step) {
  const double done = static_cast<double>(step - 1), rise = static_cast<double>(config.muon_momentum_steps);
  if (done < rise) {
    const double risen = done / rise;
    return (1 - risen) * config.muon_momentum_start + risen * config.muon_momentum;
  }
  const double decay = config.schedule == ScheduleKind::kWsd ? decay_steps(config) : 0;
  const double fallen = done - (static_cast<double>(config.steps) - decay);
  if (decay == 0 || fallen < 0) return config.muon_momentum;
  return config.muon_momentum * (1 - fallen / decay) + config.muon_momentum_end * (fallen / decay);
}

}  // namespace

Rates rates_at(const TrainConfig& config, int64_t step, int64_t width) {
  const double done = static_cast<double>(step - 1) / static_cast<double>(config.steps);
  return {.lr_scale = lr_scale_at(config, step, width),
          .decay_scale =
              config.muon_decay_schedule == DecaySchedule::kCosine ? half_cosine(std::min(1.0, done)) : 1,
          .momentum = momentum_at(config, step)};
}

}  // namespace tightloop
