#include "train/engine/precision.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdlib>

#include "core/cpu.h"
#include "core/error.h"
#include "core/log.h"
#include "core/threads.h"
#include "ops/fp8/fp8_linear.h"
#include "ops/linear.h"
#include "ops/product.h"
#include "train/engine/device_speed.h"

namespace tightloop {

namespace {

bool slow_products(at::ScalarType dtype, const Device& device) {
  if (device.is_cuda()) return false;
  return dtype == at::kHalf || (dtype == at::kBFloat16 && !cpu_has_fast_bf16());
}

}  // namespace

Device& training_device(const TrainConfig& config, int local_rank) {
  // cuBLAS reads it when it starts: a workspace of fixed size for each stream, so that products choose alike.
  if (config.deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*replace=*/0);
  const bool any_gpu = config.device == "cuda" || (config.device == "auto" && cuda_device_count() > 0);
  return device(local_rank >= 0 && any_gpu ? fmt::format("cuda:{}", local_rank) : config.device);
}

void apply_precision(const TrainConfig& config, const Device& device) {
  if (config.precision == Precision::kFp8 && !device.has_fp8())
    throw device_error(
        "train.precision fp8 needs a GPU with products in 8 bits (Ada, Hopper or newer), and {} has none. "
        "bf16 is "
        "the nearest that it has.",
        device.description());
  auto& context = at::globalContext();
  context.setFloat32MatmulPrecision(config.precision == Precision::kTf32 ? "high" : "highest");
  context.setDeterministicAlgorithms(config.deterministic, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);  // it would fill every tensor before it is written
  context.setSDPUseCuDNN(!config.deterministic);
  ops::use_fp8(config.precision == Precision::kFp8);
  ops::use_autotune(config.autotune);
}

at::ScalarType compute_dtype(Precision precision, const Device& device) {
  if (precision == Precision::kBf16 || precision == Precision::kFp8) return at::kBFloat16;
  if (precision == Precision::kFp16) return at::kHalf;
  if (precision == Precision::kFp32 || precision == Precision::kTf32) return at::kFloat;
  return slow_products(at::kBFloat16, device) ? at::kFloat : at::kBFloat16;
}

at::ScalarType inference_dtype(std::optional<Precision> asked, Precision trained, const Device& device) {
  if (asked) return compute_dtype(*asked, device);
  const auto dtype = compute_dtype(trained, device);
  return slow_products(dtype, device) ? at::kFloat : dtype;
}

void warn_of_slow_products(at::ScalarType dtype, Device& device) {
  if (!slow_products(dtype, device)) return;
  const char* const name = dtype == at::kHalf ? "fp16" : "bf16";
  if (!ops::has_products(dtype)) {
    log::warn(
        "This CPU has no products in {}: they are computed in fp32 and rounded, those of experts and of Muon "
        "element by element. Precision auto or fp32 is faster.",
        name);
    return;
  }
  const double ratio =
      measure_gemm_flops(device, at::kFloat, /*size=*/256) / measure_gemm_flops(device, dtype, /*size=*/256);
  if (ratio > 1.2)
    log::warn(
        "On this CPU products in {} take {:.1f} times as long as in fp32, which precision auto or fp32 would "
        "use.",
        name, ratio);
}

std::string precision_name(Precision precision, const Device& device) {
  if (precision == Precision::kTf32 && device.is_cuda()) return "fp32 with tf32 products";
  if (precision == Precision::kFp8) return "bf16 with fp8 products";
  const auto dtype = compute_dtype(precision, device);
  return dtype == at::kBFloat16 ? "bf16" : dtype == at::kHalf ? "fp16" : "fp32";
}

void use_threads(int64_t threads) {
  at::set_num_threads(threads > 0 ? static_cast<int>(threads) : available_cores());
}

}  // namespace tightloop
