#pragma once

// What only a GPU can do: launching, shared memory of a size known at run time, products of small matrices by
// a warp. tests/kernels/cpu has this file once more, with the same meaning for fibers on a CPU: there the
// kernels above it run thread by thread, so that their arithmetic and their barriers are tested without a
// GPU.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "ops/launch.h"

namespace tightloop::ops::cuda {

/// kernel<<<grid, block, shared, stream>>>(arguments...), with as much shared memory as it asks for.
template <class... Parameters, class... Arguments>
cudaError_t start(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                  const Arguments&... arguments) {
  constexpr size_t kWithoutAsking = 47 << 10;  // 48 KB with the kernel's own few bytes
  if (shared > kWithoutAsking) {
    const auto status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (status != cudaSuccess) return status;
  }
  kernel<<<grid, block, shared, stream>>>(arguments...);
  return cudaGetLastError();
}

/// Bytes of shared memory that one block of the current device can have.
inline cudaError_t most_shared(int& bytes) {
  int device = 0;
  const auto status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  return cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
}

/// As start, for a kernel that prefers shared memory to cache and whose blocks share `items` among them: as
/// many blocks as run at once. Its limit is always raised to `most`, so that host threads that take less do
/// not lower it under this launch.
template <class... Parameters, class... Arguments>
cudaError_t start_resident(int most, void (*kernel)(Parameters...), int64_t items, int threads, size_t shared,
                           cudaStream_t stream, const Arguments&... arguments) {
  int device = 0, multiprocessors = 0, each = 0;
  auto status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  if (status == cudaSuccess)
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared);
  if (status == cudaSuccess) status = cudaGetDevice(&device);
  if (status == cudaSuccess)
    status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (status == cudaSuccess)
    status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, shared);
  if (status != cudaSuccess) return status;
  const int64_t resident = static_cast<int64_t>(each) * multiprocessors;
  kernel<<<static_cast<unsigned>(items < resident ? items : resident), threads, shared, stream>>>(
      arguments...);
  return cudaGetLastError();
}

/// What another block has written, and not what a cache near this one held before.
__device__ inline float load_fresh(const float* from) { return __ldcg(from); }

/// The device's clock, nanoseconds from 1970.
__device__ inline unsigned long long nanoseconds_now() {
  unsigned long long nanoseconds;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds));
  return nanoseconds;
}

/// The launch's `shared` bytes, aligned to 16.
__device__ inline unsigned char* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char bytes[];
  return bytes;
}

/// 16 bytes that nobody reads again: they do not take the place of others in the first cache. Zeros, and no
/// access, where they are not `wanted`.
template <class T>
__device__ inline uint4 load_once(const T* from, bool wanted) {
  uint4 raw;
  asm volatile(
      "{.reg .pred wanted;\n"
      "setp.ne.u32 wanted, %5, 0;\n"
      "mov.u32 %0, 0; mov.u32 %1, 0; mov.u32 %2, 0; mov.u32 %3, 0;\n"
      "@wanted ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];}"
      : "=&r"(raw.x), "=&r"(raw.y), "=&r"(raw.z), "=&r"(raw.w)
      : "l"(from), "r"(static_cast<uint32_t>(wanted)));
  return raw;
}

/// 16 bytes on their way from global to shared memory, while the thread goes on. Only it may read them there,
/// after wait_for_copies; what it has read there before must have been used.
__device__ inline void copy_ahead(void* to, const void* from) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(from)
      : "memory");
}
/// The thread's copies since the last call are one group.
__device__ inline void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Until all but the thread's newest kOpen groups are there.
template <int kOpen>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

/// c (16, 8) += a (16, 16) b (16, 8) by a warp, T bf16 or fp16, sums in fp32. Lane 4 g + t holds, two
/// neighbours to a register, lower one first:
///   a: rows g, g + 8, g, g + 8 at columns 2 t, 2 t, 2 t + 8, 2 t + 8 (and the next one)
///   b: rows 2 t and 2 t + 8 (and the next one) of column g
///   c: row g, columns 2 t and 2 t + 1; row g + 8, the same columns
template <class T>
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    static_assert(std::is_same_v<T, __half>);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// Four matrices (8, 8) of 16-bit elements from shared memory by a warp. Lane i points to row i % 8 of matrix
/// i / 8, 8 elements at a multiple of 16 bytes; lane 4 g + t gets of each matrix elements 2 t and 2 t + 1 of
/// row g, lower one first, or, turned, of column g.
template <bool kTurned>
__device__ inline void load_matrices(uint32_t (&m)[4], const void* row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTurned) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at));
  }
}

}  // namespace tightloop::ops::cuda
