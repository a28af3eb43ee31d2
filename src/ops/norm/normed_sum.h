#pragma once

#include <ATen/core/Tensor.h>

namespace tightloop::ops {

/// What stands between two parts of a transformer: the residual stream with a part's result added, and its
/// norm, which the next part reads.
struct NormedSum {
  at::Tensor sum, normed;
};

}  // namespace tightloop::ops
