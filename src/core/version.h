#pragma once

namespace tightloop {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace tightloop
