#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tightloop {

/// The machines of a Slurm hostlist, in order: "gpu[01-02,7],login1" is gpu01, gpu02, gpu7, login1. A usage
/// error that shows the list where it is none.
std::vector<std::string> hosts_of(std::string_view hostlist);

}  // namespace tightloop
