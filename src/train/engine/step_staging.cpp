#include "train/engine/step_staging.h"

#include <cmath>
#include <utility>

#include "core/log.h"
#include "core/random.h"
#include "train/engine/step_numbers.h"
#include "train/optim/schedule.h"

namespace tightloop {

namespace {

/// The weight of a token in what is differentiated. fp16 would overflow on sums over many tokens, so there
/// it is about the mean over a micro-batch; a power of two, which changes no rounding.
double unit_of(const Optimizer& optimizer, int64_t positions) {
  return optimizer.scaler() ? std::exp2(-std::round(std::log2(static_cast<double>(positions)))) : 1.0;
}

}  // namespace

void StepStaging::open(int64_t done, int64_t consumed, int64_t last) {
  const int64_t accumulate = recipe_.train.accumulate;
  staged_ = done * accumulate, end_ = last * accumulate;
  task_.open(staged_, consumed, processes_.rank(), processes_.world());
}

std::optional<Staged> StepStaging::next() {
  if (staged_ == end_) return {};
  ++staged_;
  Staged staged = task_.next(pin_);
  if (staged.supervised == 0 && !std::exchange(warned_, true)) {
    log::warn(
        "Micro-batch {} holds no token to learn (its loss mask is all zero). More of them are only counted, "
        "as training/empty_batches in metrics.jsonl.",
        staged.index);
  }
  set_numbers(staged);
  return staged;
}

Staged StepStaging::again(int64_t index) {
  Staged staged = task_.again(index);
  set_numbers(staged);
  return staged;
}

void StepStaging::set_numbers(Staged& staged) const {
  const auto& train = recipe_.train;
  const int64_t step = staged.index / train.accumulate + 1;
  // Dropout draws from the seed and the place in the run alone: resuming needs no other state.
  const auto words = philox(static_cast<uint64_t>(train.seed),
                            static_cast<uint64_t>(staged.index * processes_.world() + processes_.rank()));
  staged.set(step_numbers(train, rates_at(train, step, task_.config().width), staged.supervised, staged.bytes,
                          unit_of(optimizer_, task_.positions())),
             static_cast<int64_t>(words[0] | uint64_t{words[1]} << 32));
}

}  // namespace tightloop
