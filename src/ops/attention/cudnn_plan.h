#pragma once

// Attention by cuDNN's own frontend, without torch: which problem, which memory, and a plan for it.

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>

struct cudnnContext;

namespace tightloop::cuda {

/// How a tensor (batch, head, time, size) lies in memory, in elements; a head's elements are neighbours.
struct HeadStrides {
  int64_t batch = 0, head = 0, time = 0;
  auto operator<=>(const HeadStrides&) const = default;
};

/// All that a plan depends on.
struct CudnnProblem {
  int64_t B = 0, H = 0, K = 0, T = 0, P = 0,
          S = 0;                       // batches, query heads, key heads, queries, keys, head size
  HeadStrides q{}, k{}, v{}, y{};      // forward
  HeadStrides dy{}, dq{}, dk{}, dv{};  // backward; of forward plans zeros
  bool bfloat16 = true;                // else fp16
  bool backward = false;
  bool deterministic = false;  // of a backward plan
  bool causal = true;
  int64_t window = 0;  // positions before its own that a query sees; 0: all
  float scale = 1;
  float dropout = 0;
  /// Batches are documents of one long row: they begin at offsets (elements of each tensor) and have lengths,
  /// both on the device. T and P are then the longest that may come, `tokens` is all of them together.
  bool ragged = false;
  int64_t tokens = 0;
  auto operator<=>(const CudnnProblem&) const = default;
};

/// What a plan reads and writes. stats: fp32 (B, H, T), of documents (tokens, H).
enum class CudnnTensor : int64_t {
  kQ = 1,
  kK,
  kV,
  kY,
  kStats,
  kDy,
  kDq,
  kDk,
  kDv,
  kSeed,
  kOffset,
  kLengths,
  kBeginQ,
  kBeginK,
  kBeginV,
  kBeginY,
  kBeginDy,
  kBeginDq,
  kBeginDk,
  kBeginDv,
  kBeginStats,
  kCount
};
using CudnnMemory = std::array<void*, static_cast<size_t>(CudnnTensor::kCount)>;

/// A kernel that cuDNN chose for a problem.
class CudnnPlan {
 public:
  virtual ~CudnnPlan() = default;
  virtual int64_t workspace() const = 0;  // bytes
  virtual void run(cudnnContext* handle, CudnnMemory memory, void* workspace) const = 0;
};

/// Null where cuDNN has no kernel for it; `why` then says what it said.
std::unique_ptr<CudnnPlan> make_cudnn_plan(cudnnContext* handle, const CudnnProblem& problem,
                                           std::string& why);

}  // namespace tightloop::cuda
