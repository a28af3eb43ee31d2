#pragma once

#include <ATen/core/Tensor.h>

namespace tightloop::ops {

// Whoever casts a tensor to fp8 has to know its largest magnitude first, which is one more pass over it. A
// kernel that writes the tensor finds that number for nothing, so it leaves a note of it here. Notes say what
// absolute_max() would; whether there are any changes no bits.

/// A number on the device, 0 for now, which the caller's kernel raises to x's largest magnitude. Undefined
/// where fp8 is off and nobody would ask. It counts for as long as x, whose memory may be read through other
/// views, is alive and not written to again.
at::Tensor note_largest(const at::Tensor& x);

/// What was noted for x, or else absolute_max(x).
at::Tensor largest_of(const at::Tensor& x);

}  // namespace tightloop::ops
