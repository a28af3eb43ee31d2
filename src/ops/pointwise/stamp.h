#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tightloop::ops {

/// Times on the clock of the device that `row` is on, in seconds from an origin of its own: fp64 (columns),
/// dense. On CUDA one launch on the current stream, so that it tells when the work before it was done; a
/// captured graph reads the clock at each replay. Nothing is read back.

/// row[column] = now
void stamp_(const at::Tensor& row, int64_t column);

/// row[part] += now - row[clock]; row[clock] = now. A stamp at the start and a lap after each part add the
/// parts up over as many micro-batches as there are.
void lap_(const at::Tensor& row, int64_t clock, int64_t part);

}  // namespace tightloop::ops
