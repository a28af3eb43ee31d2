#pragma once

#include <cstdint>

#include "core/choice.h"

namespace tightloop {

class Fields;

/// What of the training state is divided among processes.
enum class Sharding { kNone, kOptimizer, kGradients };
template <>
inline constexpr auto kChoices<Sharding> = std::to_array<Choice<Sharding>>({
    {Sharding::kNone, "none", "each process has all of it"},
    {Sharding::kOptimizer, "optimizer", "master weights and moments (ZeRO-1)"},
    {Sharding::kGradients, "gradients",
     "gradients too (ZeRO-2); each micro-batch of an accumulation is communicated"},
});

/// The dtype in which gradients are added up over processes.
enum class ReduceDtype { kFp32, kCompute };
template <>
inline constexpr auto kChoices<ReduceDtype> = std::to_array<Choice<ReduceDtype>>({
    {ReduceDtype::kFp32, "fp32"},
    {ReduceDtype::kCompute, "compute",
     "that of the model: half the bytes in bf16, with a rounding at each addition; sums over micro-batches "
     "stay fp32"},
});

/// What carries the tensors of GPUs.
enum class DistBackend { kAuto, kNccl, kGloo };
template <>
inline constexpr auto kChoices<DistBackend> = std::to_array<Choice<DistBackend>>({
    {DistBackend::kAuto, "auto", "NCCL; Gloo where train.device (cuda:0) names one GPU for all processes"},
    {DistBackend::kNccl, "nccl"},
    {DistBackend::kGloo, "gloo", "through the host's memory"},
});

/// Section "dist": several processes that train together.
struct DistConfig {
  Sharding shard = Sharding::kNone;
  ReduceDtype reduce = ReduceDtype::kFp32;
  DistBackend backend = DistBackend::kAuto;
  bool overlap = true;
  double bucket_mb = 25;

  void describe(Fields& fields);
};

}  // namespace tightloop
