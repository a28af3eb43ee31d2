#include "core/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace tightloop {

namespace {
std::atomic<int> watchers{0};
std::atomic<uint64_t> made{0};
}  // namespace

AllocationCount::AllocationCount() : start_(made.load()) { ++watchers; }
AllocationCount::~AllocationCount() { --watchers; }
uint64_t AllocationCount::count() const { return made.load() - start_; }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
bool AllocationCount::available() { return false; }
}  // namespace tightloop
#else
bool AllocationCount::available() { return true; }

namespace {
void* allocate(std::size_t size) {
  if (watchers.load(std::memory_order_relaxed) > 0) ++made;
  return std::malloc(size > 0 ? size : 1);
}
void* allocate_aligned(std::size_t size, std::size_t alignment) {
  if (watchers.load(std::memory_order_relaxed) > 0) ++made;
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
void* or_throw(void* memory) {
  if (!memory) throw std::bad_alloc();
  return memory;
}
}  // namespace
}  // namespace tightloop

void* operator new(std::size_t size) { return tightloop::or_throw(tightloop::allocate(size)); }
void* operator new[](std::size_t size) { return tightloop::or_throw(tightloop::allocate(size)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return tightloop::or_throw(tightloop::allocate_aligned(size, static_cast<std::size_t>(alignment)));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return tightloop::or_throw(tightloop::allocate_aligned(size, static_cast<std::size_t>(alignment)));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif
