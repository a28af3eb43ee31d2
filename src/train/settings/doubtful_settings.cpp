#include "train/settings/doubtful_settings.h"

#include <fmt/format.h>

#include <algorithm>

namespace tightloop {

std::vector<std::string> doubtful_settings(const Recipe& recipe) {
  const auto& train = recipe.train;
  const bool adamw = train.optimizer == OptimizerKind::kAdamw;
  std::vector<std::string> sentences;
  const auto say = [&](std::string sentence) { sentences.push_back(std::move(sentence)); };
  if (adamw && train.lr == 0) say("train.lr is 0: nothing will be learned.");
  const bool warms = !is_one_of(train.schedule, {ScheduleKind::kNoam, ScheduleKind::kMinimind});
  if (warms && train.steps > 1 && train.warmup_steps >= train.steps)
    say(fmt::format(
        "train.warmup_steps is {} of {} steps: the run ends before the learning rate reaches its peak.",
        train.warmup_steps, train.steps));
  const bool ends =
      is_one_of(train.schedule, {ScheduleKind::kCosine, ScheduleKind::kLinear, ScheduleKind::kWsd});
  if (ends && train.min_lr > 0 && train.min_lr < 1e-3)
    say(fmt::format(
        "train.min_lr is {}, a share of the peak: the rate ends at {:.3g}. For a tenth of the peak say 0.1.",
        train.min_lr, train.min_lr * train.lr));
  if (const int64_t rows = train.micro_batch * recipe.data.seq_len;
      train.precision == Precision::kFp8 && rows % 16 != 0)
    say(fmt::format(
        "train.precision is fp8, and micro-batches have {} tokens: products in fp8 need a multiple "
        "of 16, so all will be bf16. Change data.seq_len or train.micro_batch.",
        rows));
  if (const int64_t V = recipe.model.vocab_size;
      train.precision == Precision::kFp8 && train.fp8_head && V % 64 != 0)
    say(
        fmt::format("train.precision is fp8, and a vocabulary of {} is no multiple of 64: the head's "
                    "products will be bf16. "
                    "--model.vocab_size {} makes it one.",
                    V, (V + 63) / 64 * 64));
  for (const auto& file : recipe.data.val)
    if (std::ranges::count(recipe.data.train, file))
      say(
          fmt::format("'{}' is in data.train and in data.val: the held-out loss will not tell how well the "
                      "model does on other text.",
                      file));
  return sentences;
}

}  // namespace tightloop
