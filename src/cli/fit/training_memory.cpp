#include "cli/fit/training_memory.h"

#include <fmt/format.h>

#include "core/device.h"
#include "train/engine/precision.h"

namespace tightloop::cli {

namespace {

constexpr double kBytesOfGiB = 1 << 30;

}  // namespace

TrainingMemory training_memory(const Recipe& recipe, double gib, int64_t world) {
  Device& device = tightloop::device(recipe.train.device);
  const bool given = gib > 0, cuda = given || device.is_cuda();
  const Precision asked = recipe.train.precision;
  const bool wide = given ? is_one_of(asked, {Precision::kFp32, Precision::kTf32})
                          : compute_dtype(asked, device) == at::kFloat;
  const double limit = given ? gib : recipe.train.memory_limit;
  const double memory = limit > 0 ? limit * kBytesOfGiB : static_cast<double>(device.total_memory());
  const auto planner = MemoryPlanner(recipe.model, recipe.train, recipe.data.seq_len, wide ? 4 : 2, cuda)
                           .among(recipe.dist, world);
  MemoryChoice written = planner.written();
  ModelConfig model = recipe.model;
  model.gradient_checkpointing = resolved_checkpointing(planner, model, memory);
  written.recomputed = model.recomputed_blocks();
  const bool half = !wide && asked == Precision::kFp16;
  return {given ? "The memory given" : device.description(),
          memory,
          std::string(name_of(wide   ? Precision::kFp32
                              : half ? Precision::kFp16
                                     : Precision::kBf16)),
          wide   ? at::kFloat
          : half ? at::kHalf
                 : at::kBFloat16,
          cuda,
          planner,
          written};
}

std::string memory_text(double bytes) {
  return bytes < kBytesOfGiB ? fmt::format("{:.0f} MiB", bytes / (1 << 20))
                             : fmt::format("{:.2f} GiB", bytes / kBytesOfGiB);
}

}  // namespace tightloop::cli
