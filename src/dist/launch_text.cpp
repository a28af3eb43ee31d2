#include "dist/launch_text.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "core/counted.h"
#include "core/hash.h"

namespace tightloop {

namespace {

/// The same number for all processes of a machine, also in containers that have names of their own.
int64_t machine_number() {
  std::string id;
  if (!std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id)) {
    char name[256] = "";
    ::gethostname(name, sizeof name - 1);
    id = name;
  }
  return static_cast<int64_t>(hash64(id));
}

int64_t machines(Processes& processes) {
  const auto own = at::full({1}, machine_number(), at::kLong),
             all = at::empty({processes.world()}, at::kLong);
  processes.all_gather(all, own).wait();
  const auto* numbers = all.const_data_ptr<int64_t>();
  return static_cast<int64_t>(std::set<int64_t>(numbers, numbers + processes.world()).size());
}

}  // namespace

std::string launch_text(Processes& processes) {
  const Rendezvous& rendezvous = processes.rendezvous();
  if (rendezvous.launcher.empty()) return {};
  if (!processes.several()) return fmt::format("1 process, started by {}.", rendezvous.launcher);
  return fmt::format("{} processes on {}, started by {}, meet at {}:{}.", processes.world(),
                     counted(machines(processes), "machine"), rendezvous.launcher, rendezvous.address,
                     rendezvous.port);
}

}  // namespace tightloop
