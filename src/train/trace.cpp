#include "train/trace.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace tightloop {

double trace(const std::filesystem::path& file, bool gpu, const std::function<void()>& work) {
  namespace profiler = torch::autograd::profiler;
  using torch::profiler::impl::ActivityType;
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  std::set<ActivityType> activities{ActivityType::CPU};
  if (gpu) activities.insert(ActivityType::CUDA);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  work();
  const auto result = profiler::disableProfiler();

  std::vector<std::pair<int64_t, int64_t>> spans;  // of the device, in nanoseconds
  for (const auto& event : result->events())
    if (event.deviceType() == at::kCUDA && event.durationNs() > 0)
      spans.emplace_back(event.startNs(), event.startNs() + static_cast<int64_t>(event.durationNs()));
  std::ranges::sort(spans);
  int64_t busy = 0, until = 0, first = spans.empty() ? 0 : spans.front().first;
  for (const auto& [begin, end] : spans) {
    if (end <= until) continue;
    busy += end - std::max(begin, until);
    until = end;
  }
  result->save(file.string());
  return until > first ? static_cast<double>(busy) / static_cast<double>(until - first) : 0;
}

}  // namespace tightloop
