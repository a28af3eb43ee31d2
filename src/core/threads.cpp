#include "core/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace tightloop {

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

void parallel_for(size_t count, int threads, size_t grain,
                  const std::function<void(size_t, size_t, int)>& body) {
  if (count == 0) return;
  grain = std::max<size_t>(1, grain);
  const size_t chunks = (count + grain - 1) / grain;
  const int workers = static_cast<int>(std::min<size_t>(chunks, threads > 0 ? threads : available_cores()));
  if (workers == 1) {
    for (size_t begin = 0; begin < count; begin += grain) body(begin, std::min(count, begin + grain), 0);
    return;
  }
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  auto work = [&](int worker) {
    try {
      for (size_t chunk; (chunk = next.fetch_add(1)) < chunks;) {
        const size_t begin = chunk * grain;
        body(begin, std::min(count, begin + grain), worker);
      }
    } catch (...) {
      next.store(chunks);
      std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> pool;
  for (int worker = 1; worker < workers; ++worker) pool.emplace_back(work, worker);
  work(0);
  for (auto& thread : pool) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tightloop
