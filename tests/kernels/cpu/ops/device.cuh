#pragma once

// The CPU's twin of src/ops/device.cuh, found first where a test includes a kernel's .cu. A block's threads
// are fibers of one thread of the host: each runs until it comes to a barrier of its block or its warp.
// Blocks run one after the other, their shared memory is filled with NaN before each.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/launch.h"

namespace cuda_on_cpu {

struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  uint3 thread{};
  int index = 0;
  enum { kReady, kAtBlock, kAtWarp, kDone } state = kReady;
  std::vector<std::vector<std::pair<void*, const void*>>> copies{1};  // by group; the last one is open
};

/// A block under way.
struct Block {
  uint3 index{};
  dim3 size, grid;
  std::vector<Fiber> fibers;
  std::vector<unsigned char> shared;
  std::vector<uint64_t> exchange;  // 8 words for each thread: what it shows to its warp
  ucontext_t scheduler;
  Fiber* current = nullptr;
  std::function<void()> body;
};

inline Block* running = nullptr;
/// Whether the last thread of a block runs first. It changes from block to block: results must not depend on
/// it.
inline bool backwards = false;

inline void wait(decltype(Fiber::state) at) {
  Fiber* self = running->current;
  self->state = at;
  ::swapcontext(&self->context, &running->scheduler);
}

inline void enter() {
  running->body();
  running->current->state = Fiber::kDone;
  ::swapcontext(&running->current->context, &running->scheduler);
}

// Lets every thread of a group that stands at its barrier go on once none of the group is on its way to it.
inline bool release(Block& block, size_t begin, size_t end, decltype(Fiber::state) at) {
  bool any = false;
  for (size_t i = begin; i < end; ++i) {
    const auto state = block.fibers[i].state;
    if (state != at && state != Fiber::kDone) return false;
    any |= state == at;
  }
  if (any)
    for (size_t i = begin; i < end; ++i)
      if (block.fibers[i].state == at) block.fibers[i].state = Fiber::kReady;
  return any;
}

inline void run_block(Block& block) {
  const size_t threads = block.size.x * block.size.y * block.size.z;
  if (threads % 32 != 0 && threads != 1) throw std::logic_error("a block must be of whole warps");
  std::memset(block.shared.data(), 0xff, block.shared.size());
  block.exchange.assign(threads * 8, 0);
  block.fibers.resize(threads);
  running = &block;
  for (size_t i = 0; i < threads; ++i) {
    Fiber& fiber = block.fibers[i];
    fiber.stack.resize(128 << 10);
    fiber.index = static_cast<int>(i);
    fiber.thread = {static_cast<unsigned>(i % block.size.x),
                    static_cast<unsigned>(i / block.size.x % block.size.y),
                    static_cast<unsigned>(i / block.size.x / block.size.y)};
    fiber.state = Fiber::kReady;
    fiber.copies.assign(1, {});
    ::getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    ::makecontext(&fiber.context, enter, 0);
  }
  for (size_t done = 0; done < threads;) {
    bool moved = false;
    for (size_t k = 0; k < threads; ++k) {
      Fiber& fiber = block.fibers[backwards ? threads - 1 - k : k];
      if (fiber.state != Fiber::kReady) continue;
      block.current = &fiber;
      ::swapcontext(&block.scheduler, &fiber.context);
      done += fiber.state == Fiber::kDone;
      moved = true;
    }
    for (size_t warp = 0; warp < threads; warp += 32)
      moved |= release(block, warp, std::min(warp + 32, threads), Fiber::kAtWarp);
    moved |= release(block, 0, threads, Fiber::kAtBlock);
    if (!moved && done < threads) throw std::logic_error("threads wait for each other at different barriers");
  }
  running = nullptr;
  backwards = !backwards;
}

/// What each lane of this warp shows, to all of its lanes.
inline uint64_t* show(int words, const uint64_t* mine) {
  Fiber* self = running->current;
  std::memcpy(&running->exchange[static_cast<size_t>(self->index) * 8], mine, static_cast<size_t>(words) * 8);
  wait(Fiber::kAtWarp);
  return &running->exchange[static_cast<size_t>(self->index) / 32 * 32 * 8];
}

}  // namespace cuda_on_cpu

#undef __shared__
#undef __launch_bounds__
#undef __align__
#define __shared__ static
#define __launch_bounds__(...)
#define threadIdx (::cuda_on_cpu::running->current->thread)
#define blockIdx (::cuda_on_cpu::running->index)
#define gridDim (::cuda_on_cpu::running->grid)
#define blockDim (::cuda_on_cpu::running->size)

inline void __syncthreads() { cuda_on_cpu::wait(cuda_on_cpu::Fiber::kAtBlock); }
inline void __syncwarp() { cuda_on_cpu::wait(cuda_on_cpu::Fiber::kAtWarp); }
inline void __threadfence() {}
template <class Value>
Value __shfl_xor_sync(unsigned, Value value, int distance) {
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  const uint64_t* lanes = cuda_on_cpu::show(1, &word);
  const int lane = (cuda_on_cpu::running->current->index % 32) ^ distance;
  std::memcpy(&value, &lanes[lane * 8], sizeof value);
  cuda_on_cpu::wait(cuda_on_cpu::Fiber::kAtWarp);  // before somebody shows the next
  return value;
}
inline int __syncthreads_or(int mine) {
  cuda_on_cpu::Block& block = *cuda_on_cpu::running;
  block.exchange[static_cast<size_t>(block.current->index) * 8] = mine != 0;
  cuda_on_cpu::wait(cuda_on_cpu::Fiber::kAtBlock);
  int any = 0;
  for (size_t i = 0; i < block.exchange.size(); i += 8) any |= block.exchange[i] != 0;
  cuda_on_cpu::wait(cuda_on_cpu::Fiber::kAtBlock);  // before somebody shows the next
  return any;
}
template <class Value>
Value atomicMax(Value* at, Value value) {
  return std::exchange(*at, std::max(*at, value));
}
template <class Value>
Value atomicAdd(Value* at, Value value) {
  return std::exchange(*at, *at + value);
}
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); }
inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t which) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
  uint32_t made = 0;
  for (int i = 0; i < 4; ++i)
    made |= static_cast<uint32_t>(bytes >> (which >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return made;
}
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __logf(float x) { return std::log(x); }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }

namespace tightloop::ops::cuda {

using std::max;
using std::min;

template <class... Parameters, class... Arguments>
cudaError_t start(void (*kernel)(Parameters...), dim3 grid, dim3 size, size_t shared, cudaStream_t,
                  const Arguments&... arguments) {
  cuda_on_cpu::Block block;
  block.size = size;
  block.grid = grid;
  block.shared.resize(shared);
  block.body = [&] { kernel(arguments...); };
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        block.index = {x, y, z};
        cuda_on_cpu::run_block(block);
      }
  return cudaSuccess;
}

inline cudaError_t most_shared(int& bytes) {
  bytes = 227 << 10;  // as a Hopper
  return cudaSuccess;
}

template <class... Parameters, class... Arguments>
cudaError_t start_resident(int most, void (*kernel)(Parameters...), int64_t items, int threads, size_t shared,
                           cudaStream_t stream, const Arguments&... arguments) {
  constexpr int64_t kResident = 3;  // few, so that a block has several
  if (shared > static_cast<size_t>(most)) return cudaErrorInvalidValue;
  return start(kernel, static_cast<unsigned>(std::min(items, kResident)), threads, shared, stream,
               arguments...);
}

inline float load_fresh(const float* from) { return *from; }

inline unsigned long long nanoseconds_now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<unsigned long long>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

inline unsigned char* dynamic_shared() { return cuda_on_cpu::running->shared.data(); }

template <class T>
uint4 load_once(const T* from, bool wanted) {
  if (!wanted) return {};
  if (std::bit_cast<uintptr_t>(from) % 16 != 0) throw std::logic_error("a wide load is not aligned");
  uint4 raw;
  std::memcpy(&raw, from, sizeof raw);
  return raw;
}

inline void copy_ahead(void* to, const void* from) {
  for (const void* end : {static_cast<const void*>(to), from})
    if (std::bit_cast<uintptr_t>(end) % 16 != 0) throw std::logic_error("a copy ahead is not aligned");
  cuda_on_cpu::running->current->copies.back().emplace_back(to, from);
}
inline void close_copies() { cuda_on_cpu::running->current->copies.emplace_back(); }
/// As late as can be, so that what is read without waiting is not there.
template <int kOpen>
void wait_for_copies() {
  auto& groups = cuda_on_cpu::running->current->copies;
  while (groups.size() > kOpen + 1) {
    for (const auto& [to, from] : groups.front()) std::memcpy(to, from, 16);
    groups.erase(groups.begin());
  }
}

template <class T>
void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint64_t mine[] = {a[0], a[1], a[2], a[3], b0, b1};
  const uint64_t* lanes = cuda_on_cpu::show(6, mine);
  // Element `part` of the pair that lane 4 g + t keeps in a register.
  const auto element = [&](int g, int t, int word, int part) {
    const auto pair = static_cast<uint32_t>(lanes[(4 * g + t) * 8 + word]);
    const auto bits = static_cast<uint16_t>(part ? pair >> 16 : pair);
    return static_cast<float>(std::bit_cast<T>(bits));
  };
  const int lane = cuda_on_cpu::running->current->index % 32, g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) {
    const int low = i / 2, column = 2 * t + i % 2;  // row g + 8 low of c
    for (int k = 0; k < 16; ++k) {
      const int from = k % 8 / 2, word = k / 8;
      c[i] += element(g, from, low + 2 * word, k % 2) * element(column, from, 4 + word, k % 2);
    }
  }
  cuda_on_cpu::wait(cuda_on_cpu::Fiber::kAtWarp);
}

template <bool kTurned>
void load_matrices(uint32_t (&m)[4], const void* row) {
  if (std::bit_cast<uintptr_t>(row) % 16 != 0) throw std::logic_error("a matrix's row is not aligned");
  const auto mine = static_cast<uint64_t>(std::bit_cast<uintptr_t>(row));
  const uint64_t* lanes = cuda_on_cpu::show(1, &mine);
  const auto element = [&](int matrix, int r, int c) {
    const auto* from = std::bit_cast<const uint16_t*>(static_cast<uintptr_t>(lanes[(8 * matrix + r) * 8]));
    return static_cast<uint32_t>(from[c]);
  };
  const int lane = cuda_on_cpu::running->current->index % 32, g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i)
    m[i] = kTurned ? element(i, 2 * t, g) | element(i, 2 * t + 1, g) << 16
                   : element(i, g, 2 * t) | element(i, g, 2 * t + 1) << 16;
  cuda_on_cpu::wait(cuda_on_cpu::Fiber::kAtWarp);
}

}  // namespace tightloop::ops::cuda
