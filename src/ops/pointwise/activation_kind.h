#pragma once

namespace tightloop::ops {

/// kSquared is for backward passes alone: the slope of kReluSquare by its result, so that its input need not be kept.
enum class ActivationKind { kRelu, kReluSquare, kGelu, kGeluTanh, kSquared };

}  // namespace tightloop::ops
