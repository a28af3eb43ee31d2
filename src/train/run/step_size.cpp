#include "train/run/step_size.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/counted.h"
#include "core/error.h"

namespace tightloop {

namespace {

std::string processes_text(int64_t count) {
  return fmt::format("{} process{}", count, count == 1 ? "" : "es");
}

}  // namespace

StepSize StepSize::of(const nlohmann::json& metadata) {
  const auto batch = metadata.find("batch");
  if (batch == metadata.end()) return {};
  return {batch->value("samples", int64_t{0}), batch->value("processes", int64_t{0})};
}

std::string fit_micro_batch(TrainConfig& train, int64_t row_tokens, int64_t world) {
  const int64_t rows = train.step_tokens / row_tokens, before = train.micro_batch;
  if (rows == 0 || before == 0 || train.step_tokens % row_tokens != 0) return {};
  if (rows % world != 0)
    throw usage_error(
        "a step has {} (train.step_tokens {}), which {} cannot share evenly. Take a number of processes that "
        "divides {}, or give another --train.step_tokens.",
        counted(rows, "row"), train.step_tokens, processes_text(world), rows);
  const int64_t share = rows / world;
  train.micro_batch = std::min(before, share);
  while (share % train.micro_batch != 0) --train.micro_batch;
  if (train.micro_batch == before) return {};
  return fmt::format(
      "train.micro_batch: was {}, is {}, for a step stays as large as train.step_tokens says: {} in {}, {} "
      "in each.",
      before, train.micro_batch, counted(rows, "row"), processes_text(world), share);
}

std::string step_size_note(const StepSize& was, const StepSize& is, int64_t row_tokens) {
  if (was.samples == 0 || was.samples == is.samples) return {};
  const std::string unit = row_tokens > 0 ? "row" : "micro-batch";
  const std::string plural = row_tokens > 0 ? "s" : "es";
  const auto size = [&](const StepSize& step) {
    return fmt::format("{} {}{} in {}", step.samples, unit, step.samples == 1 ? "" : plural,
                       processes_text(step.processes));
  };
  std::string text =
      fmt::format("The effective batch changes: a step had {}, it has {} now.", size(was), size(is));
  if (was.samples % is.processes != 0) return text;
  // Rows keep their number through further changes, too; batches of pairs have no such setting.
  return text + (row_tokens > 0
                     ? fmt::format(" To keep it: --train.step_tokens {}.", was.samples * row_tokens)
                     : fmt::format(" To keep it: --train.accumulate {}.", was.samples / is.processes));
}

}  // namespace tightloop
