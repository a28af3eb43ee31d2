#pragma once

#include <string>

#include "dist/processes.h"

namespace tightloop {

/// Who started how many processes on how many machines, and where they meet: "8 processes on 2 machines,
/// started by srun (Slurm job 7), meet at gpu01:21077." Empty where nobody has. All processes make this call.
std::string launch_text(Processes& processes);

}  // namespace tightloop
