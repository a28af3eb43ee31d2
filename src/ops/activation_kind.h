#pragma once

namespace tightloop::ops {

enum class ActivationKind { kRelu, kGelu, kGeluTanh };

}  // namespace tightloop::ops
