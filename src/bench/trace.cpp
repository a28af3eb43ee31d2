#include "bench/trace.h"

#include <kineto/ActivityType.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

namespace tightloop {

KernelTable trace(const std::filesystem::path& file, bool gpu, const std::function<void()>& work) {
  namespace profiler = torch::autograd::profiler;
  using libkineto::ActivityType;
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  std::set<torch::profiler::impl::ActivityType> activities{torch::profiler::impl::ActivityType::CPU};
  if (gpu) activities.insert(torch::profiler::impl::ActivityType::CUDA);
  if (!gpu) ::setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0);  // it complains that there is no GPU
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  work();
  const auto result = profiler::disableProfiler();

  std::set<ActivityType> wanted{ActivityType::CPU_OP};
  if (gpu) wanted = {ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY, ActivityType::GPU_MEMSET};
  std::vector<KernelSpan> spans;
  for (const auto& event : result->events()) {
    if (!wanted.contains(static_cast<ActivityType>(event.activityType()))) continue;
    spans.push_back({gpu ? short_kernel_name(event.name()) : event.name(),
                     static_cast<int64_t>(event.startNs()), static_cast<int64_t>(event.endNs()),
                     event.startThreadId()});
  }
  result->save(file.string());
  return kernel_table(std::move(spans), /*nested=*/!gpu);
}

}  // namespace tightloop
