#include "train/guard/straggler_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace tightloop {

namespace {

/// Of the others that have told; the lower one of two. 0: none has.
double median_of_others(const std::vector<double>& paces, size_t own) {
  std::vector<double> others;
  for (size_t i = 0; i < paces.size(); ++i)
    if (i != own && paces[i] > 0) others.push_back(paces[i]);
  if (others.empty()) return 0;
  const auto middle = others.begin() + static_cast<ptrdiff_t>((others.size() - 1) / 2);
  std::nth_element(others.begin(), middle, others.end());
  return *middle;
}

}  // namespace

std::vector<Straggler> StragglerJudge::judge(const std::vector<double>& paces, Clock::time_point now) {
  records_.resize(paces.size());
  std::vector<Straggler> found;
  for (size_t i = 0; i < paces.size(); ++i) {
    Record& record = records_[i];
    const double usual = median_of_others(paces, i);
    const bool slow = usual > 0 && paces[i] >= kSlow * usual;
    if (slow && !record.slow) record.since = now;
    record.slow = slow;
    if (!slow || now - record.since < kWhile) continue;
    if (record.named && now - record.last_named < kApart) continue;
    record.named = true, record.last_named = now;
    found.push_back({static_cast<int>(i), paces[i], usual});
  }
  return found;
}

void StragglerWatch::step(const StepSums& sums, double waited, Clock::time_point now) {
  // Not what the host does between steps: there it may wait for the others.
  for (const int part : {LossBuffer::kData, LossBuffer::kForward, LossBuffer::kBackward, LossBuffer::kUpdate})
    seconds_ += sums[part];
  ++steps_;
  if (now - told_ < kTell) return;
  seconds_ += std::max(0.0, waited - waited_);  // counted anew after a rollback
  if (seconds_ > 0) processes_.tell_pace(seconds_ / static_cast<double>(steps_));
  told_ = now, seconds_ = 0, steps_ = 0, waited_ = waited;
  if (!processes_.main()) return;
  for (const Straggler& one : judge_.judge(processes_.paces(), now))
    named_(fmt::format(
        "Step {}, a straggler: {} takes {:.3g} s for its own work on a step, {:.1f} times the median of the "
        "others ({:.3g} s), and they wait for it. Look for other programs there, a GPU that is throttled, or "
        "slow data files.",
        sums.step, processes_.name(one.rank), one.seconds, one.seconds / one.usual, one.usual));
}

}  // namespace tightloop
