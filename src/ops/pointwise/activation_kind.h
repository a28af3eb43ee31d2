#pragma once

namespace tightloop::ops {

enum class ActivationKind { kRelu, kReluSquare, kGelu, kGeluTanh };

}  // namespace tightloop::ops
