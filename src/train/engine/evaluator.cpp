#include "train/engine/evaluator.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <iterator>

#include "core/interrupt.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "dist/shared_work.h"
#include "ops/fp8/fp8_linear.h"

namespace tightloop {

namespace {

Task::Evaluation values_of(const HeldOutLoss& loss) {
  Task::Evaluation values{{"eval/loss", loss.mean()}, {"eval/accuracy", loss.accuracy()}};
  if (loss.bytes > 0) values.emplace_back("eval/bits_per_byte", loss.bits_per_byte());
  return values;
}

}  // namespace

void Evaluator::check() {
  const auto why = task_.why_no_evaluation();
  possible_ = why.empty();
  if (!possible_) log::warn("There will be no evaluation on held-out data: {}", why);
}

void Evaluator::failed(int64_t step, const char* what, const std::string& why) {
  if (processes_.main()) log::warn("step {}: {} failed, training goes on: {}", step, what, why);
  device_.empty_cache();
}

bool Evaluator::share(int64_t step, const char* what, Measured& measured,
                      const std::function<void()>& share) {
  const SharedWork work = share_work(processes_, share);
  measured.interrupted = work.interrupted;
  if (work.failed >= 0 && !work.interrupted) failed(step, what, work.text(processes_));
  return work.whole();
}

Evaluator::Measured Evaluator::measure(int64_t step) {
  if (!possible_) return {};
  const ops::WithoutFp8 as_exported;
  Measured measured;
  Task::Evaluation values;
  {
    constexpr auto kWhat = "the loss on held-out data";
    std::optional<HeldOutSums> sums;
    if (!share(step, kWhat, measured, [&] { sums = task_.evaluate(processes_.rank(), processes_.world()); }))
      return measured;
    sums->gather(processes_);
    try {
      const HeldOutLoss total = sums->total();
      values = values_of(total), measured.tokens = total.tokens;
    } catch (const std::exception& error) {  // in all processes the same
      failed(step, kWhat, first_line(error.what()));
      return measured;
    }
  }
  constexpr auto kMore = "what is measured besides the loss on held-out data";
  if (split_.count) {
    std::vector<int64_t> counts;
    if (share(step, kMore, measured, [&] { counts = split_.count(processes_.rank(), processes_.world()); })) {
      processes_.sum_(at::from_blob(counts.data(), {static_cast<int64_t>(counts.size())}, at::kLong));
      std::ranges::move(split_.values(counts), std::back_inserter(values));
    }
  }
  if (!measured.interrupted) {  // whether there is anything is for the main process to know
    Task::Evaluation more;
    if (share(step, kMore, measured, [&] {
          if (processes_.main() && more_) more = more_();
        }))
      std::ranges::move(more, std::back_inserter(values));
  }
  if (!measured.interrupted) measured.values = std::move(values);
  return measured;
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
