#pragma once

namespace tightloop::cli {

/// Prints what this machine has and what to do about what is missing. Returns the exit code.
int doctor(bool json);

}  // namespace tightloop::cli
