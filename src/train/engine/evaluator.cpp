#include "train/engine/evaluator.h"

#include <algorithm>
#include <iterator>

#include "core/interrupt.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "ops/fp8/fp8_linear.h"

namespace tightloop {

void Evaluator::check() {
  const auto why = task_.why_no_evaluation();
  possible_ = why.empty();
  if (!possible_) log::warn("There will be no evaluation on held-out data: {}", why);
}

std::optional<Task::Evaluation> Evaluator::measure(int64_t step) {
  if (!possible_) return {};
  const ops::WithoutFp8 as_exported;
  Task::Evaluation values;
  const auto failed = [&](const char* what, const std::exception& error) {
    if (interrupted()) return;
    log::warn("step {}: {} on held-out data failed, training goes on: {}", step, what,
              first_line(error.what()));
    device_.empty_cache();
  };
  try {
    values = task_.evaluate();
  } catch (const std::exception& error) {
    failed("the loss", error);
    return {};
  }
  try {
    auto more = more_ ? more_() : Task::Evaluation();
    if (interrupted()) return {};
    std::ranges::move(more, std::back_inserter(values));
  } catch (const std::exception& error) {
    failed("what is measured besides the loss", error);
    if (interrupted()) return {};
  }
  return values;
}

std::optional<Task::Evaluation> Evaluator::measure_suite(int64_t step) {
  if (!suite_) return {};
  const ops::WithoutFp8 as_exported;
  try {
    task_.refresh_weights();
    return suite_();
  } catch (const std::exception& error) {
    if (interrupted()) return {};
    log::warn("step {}: eval.suite could not be measured, training goes on: {}", step,
              first_line(error.what()));
    device_.empty_cache();
    return {};
  }
}

}  // namespace tightloop
