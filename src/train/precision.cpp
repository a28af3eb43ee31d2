#include "train/precision.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdlib>

#include "core/cpu.h"
#include "core/threads.h"

namespace tightloop {

Device& training_device(const TrainConfig& config, int local_rank) {
  // cuBLAS reads it when it starts: a workspace of fixed size for each stream, so that products choose alike.
  if (config.deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*replace=*/0);
  const bool any_gpu = config.device == "cuda" || (config.device == "auto" && cuda_device_count() > 0);
  return device(local_rank >= 0 && any_gpu ? fmt::format("cuda:{}", local_rank) : config.device);
}

void apply_precision(const TrainConfig& config) {
  auto& context = at::globalContext();
  context.setFloat32MatmulPrecision(config.precision == "tf32" ? "high" : "highest");
  context.setDeterministicAlgorithms(config.deterministic, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);  // it would fill every tensor before it is written
  context.setSDPUseCuDNN(!config.deterministic);
}

at::ScalarType compute_dtype(const std::string& precision, const Device& device) {
  if (precision == "bf16") return at::kBFloat16;
  if (precision == "fp16") return at::kHalf;
  if (precision == "fp32" || precision == "tf32") return at::kFloat;
  return device.is_cuda() || cpu_has("amx_bf16") ? at::kBFloat16 : at::kFloat;
}

std::string precision_name(const std::string& precision, const Device& device) {
  if (precision == "tf32") return "fp32 with tf32 products";
  const auto dtype = compute_dtype(precision, device);
  return dtype == at::kBFloat16 ? "bf16" : dtype == at::kHalf ? "fp16" : "fp32";
}

void use_threads(int64_t threads) {
  at::set_num_threads(threads > 0 ? static_cast<int>(threads) : available_cores());
}

}  // namespace tightloop
