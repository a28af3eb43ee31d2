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
  if (config.schedule == "minimind") {
    // The rate of the micro-batch that ends the step, of all micro-batches, counted from 1.
    const auto passes = static_cast<double>(config.accumulate);
    return 0.1 + 0.45 * (1 + std::cos(std::numbers::pi * (s * passes) / (steps * passes)));
  }
  if (config.schedule == "noam") {
    const double rising = warmup > 0 ? s * std::pow(warmup, -1.5) : INFINITY;
    return std::pow(static_cast<double>(width), -0.5) * std::min(std::pow(s, -0.5), rising);
  }
  if (step <= config.warmup_steps) return s / warmup;
  if (config.schedule == "constant") return 1;
  if (config.schedule == "inverse_sqrt") return std::sqrt(std::max(1.0, warmup) / s);
  const auto falling = [&](double left) { return config.min_lr + (1 - config.min_lr) * left; };
  if (config.schedule == "wsd") {
    const double decay = decay_steps(config), left = steps - (s - 1);
    return left >= decay ? 1 : falling(left / decay);
  }
  const double progress = std::min(1.0, (s - warmup) / std::max(1.0, steps - warmup));
  return falling(config.schedule == "linear" ? 1 - progress : half_cosine(progress));
}

double momentum_at(const TrainConfig& config, int64_t step) {
  const double done = static_cast<double>(step - 1), rise = static_cast<double>(config.muon_momentum_steps);
  if (done < rise) {
    const double risen = done / rise;
    return (1 - risen) * config.muon_momentum_start + risen * config.muon_momentum;
  }
  const double decay = config.schedule == "wsd" ? decay_steps(config) : 0;
  const double fallen = done - (static_cast<double>(config.steps) - decay);
  if (decay == 0 || fallen < 0) return config.muon_momentum;
  return config.muon_momentum * (1 - fallen / decay) + config.muon_momentum_end * (fallen / decay);
}

}  // namespace

Rates rates_at(const TrainConfig& config, int64_t step, int64_t width) {
  const double done = static_cast<double>(step - 1) / static_cast<double>(config.steps);
  return {.lr_scale = lr_scale_at(config, step, width),
          .decay_scale = config.muon_decay_schedule == "cosine" ? half_cosine(std::min(1.0, done)) : 1,
          .momentum = momentum_at(config, step)};
}

}  // namespace tightloop
