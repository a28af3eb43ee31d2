#include "cli/verbs.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <alloca.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

namespace {

// Threads of libgomp that wait for each other spin for some 14 ms before they sleep. Where another process
// takes one of the cores, that is most of the time, and training is twenty times slower. Spinning for a
// fraction of a millisecond is as fast on a quiet machine and three to eight times faster beside a busy
// process (docs/log.md).
constexpr char kSpins[] = "GOMP_SPINCOUNT=7000";

const char* find(char** environment, const char* name) {
  const size_t length = std::strlen(name);
  for (char** variable = environment; *variable; ++variable)
    if (std::strncmp(*variable, name, length) == 0 && (*variable)[length] == '=')
      return *variable + length + 1;
  return nullptr;
}

// By a debugger, which would rather see one program than two.
bool is_traced(char** environment) {
  const char* preloaded = find(environment, "LD_PRELOAD");
  if (preloaded && std::strstr(preloaded, "vgpreload")) return true;  // valgrind
  char status[4096] = {};
  const int file = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return true;
  const ssize_t got = ::read(file, status, sizeof status - 1);
  ::close(file);
  return got <= 0 || !std::strstr(status, "TracerPid:\t0\n");
}

// libgomp reads its settings while it is loaded, so they must be there when the program starts: it starts
// itself once more with them, before any library has begun to work (some 15 ms; from main() it would be 250).
// What the user has set stays.
void start_with_spins(int, char** arguments, char** environment) {
  if (find(environment, "GOMP_SPINCOUNT") || find(environment, "OMP_WAIT_POLICY") || is_traced(environment))
    return;
  // Started as `ld.so tightloop ...`, /proc/self/exe is the loader, which has no interpreter of its own.
  if (::getauxval(AT_BASE) == 0) return;
  size_t count = 0;
  while (environment[count]) ++count;
  auto** with_spins = static_cast<char**>(alloca((count + 2) * sizeof(char*)));
  std::copy_n(environment, count, with_spins);
  with_spins[count] = const_cast<char*>(kSpins);
  with_spins[count + 1] = nullptr;
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return;
  path[length] = '\0';
  ::execve(path, arguments, with_spins);  // where it cannot, the program goes on as it is
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)(int, char**,
                                                                             char**) = start_with_spins;

}  // namespace

#endif

int main(int argc, char** argv) { return tightloop::cli::run(argc, argv); }
