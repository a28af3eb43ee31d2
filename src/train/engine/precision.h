#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "core/device.h"
#include "train/train_config.h"

namespace tightloop {

/// The device of train.device, with what must be set before it is opened. `local_rank` chooses the GPU where
/// several processes share a machine; -1: there is one process.
Device& training_device(const TrainConfig& config, int local_rank);
/// Sets torch to what train.precision and train.deterministic ask for; an error where the device cannot.
void apply_precision(const TrainConfig& config, const Device& device);

/// What train.precision means on a device.
at::ScalarType compute_dtype(Precision precision, const Device& device);
/// The same for a model that is only used: `asked` (none: as it was trained, but in fp32 on a CPU whose
/// products are slow in that dtype).
at::ScalarType inference_dtype(std::optional<Precision> asked, Precision trained, const Device& device);
/// Says by how much products in this dtype are slower than in fp32, where they are: on most CPUs.
void warn_of_slow_products(at::ScalarType dtype, Device& device);
/// For people: "bf16", "fp32 with tf32 products".
std::string precision_name(Precision precision, const Device& device);

/// Sets torch's thread pool (train.threads; 0: all cores).
void use_threads(int64_t threads);

}  // namespace tightloop
