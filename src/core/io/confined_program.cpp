#include "core/io/confined_program.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"

namespace tightloop {

namespace {

constexpr int kNotStarted = 127;

/// A folder for one program.
class OwnFolder {
 public:
  OwnFolder() : path_((temporary_folder() / "tightloop-XXXXXX").string()) {
    if (!::mkdtemp(path_.data()))
      throw usage_error("cannot make a folder in '{}': {}.", temporary_folder().string(),
                        std::strerror(errno));
  }
  ~OwnFolder() {
    std::error_code failure;
    fs::remove_all(path_, failure);
  }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void bound(int resource, uint64_t most) {
  const rlimit limit{most, most};
  ::setrlimit(resource, &limit);
}

/// What the child does between fork and exec: system calls alone, for the parent has threads.
[[noreturn]] void become(const char* const* words, const char* folder, const ConfinedLimits& limits) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  ::unshare(CLONE_NEWUSER | CLONE_NEWNET);  // a system may forbid it
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE, SIGHUP}) ::signal(signal, SIG_DFL);
  const int null = ::open("/dev/null", O_RDWR);
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, file);
  ::syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
  bound(RLIMIT_AS, limits.memory_bytes);
  bound(RLIMIT_FSIZE, limits.file_bytes);
  bound(RLIMIT_CPU, static_cast<uint64_t>(limits.time.count()) / 1000 + 1);
  bound(RLIMIT_NOFILE, 64);
  bound(RLIMIT_CORE, 0);
  const char* const environment[] = {"PATH=/usr/bin:/bin", "OMP_NUM_THREADS=1", nullptr};
  if (::chdir(folder) == 0)
    ::execve(words[0], const_cast<char* const*>(words), const_cast<char* const*>(environment));
  ::_exit(kNotStarted);
}

}  // namespace

ProgramEnd run_confined(const std::string& interpreter, const std::string& script,
                        const ConfinedLimits& limits) {
  const fs::path found = fs::absolute(interpreter);
  if (::access(found.c_str(), X_OK) != 0)
    throw usage_error(
        "'{}' cannot be started: {}. Name the interpreter by its path, such as /usr/bin/python3.",
        interpreter, std::strerror(errno));
  const OwnFolder folder;
  const std::string file = folder.path() + "/program.py";
  write_file_whole(file, script);
  const std::vector<const char*> words{found.c_str(), "-I", file.c_str(), nullptr};
  const pid_t child = ::fork();
  if (child < 0) throw usage_error("'{}' cannot be started: {}.", interpreter, std::strerror(errno));
  if (child == 0) become(words.data(), folder.path().c_str(), limits);

  constexpr std::chrono::milliseconds kPause{2};
  const auto end = std::chrono::steady_clock::now() + limits.time;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() < end && !interrupted()) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    ::kill(-child, SIGKILL);
    ::kill(child, SIGKILL);  // before it has a session of its own
    ::waitpid(child, &status, 0);
    return ProgramEnd::kTimedOut;
  }
  ::kill(-child, SIGKILL);  // what it has left running
  // A script may end with that code as well: an empty one does not.
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotStarted &&
      (script.empty() || run_confined(interpreter, "") != ProgramEnd::kSucceeded))
    throw usage_error("'{}' cannot be started.", interpreter);
  return WIFEXITED(status) && WEXITSTATUS(status) == limits.success ? ProgramEnd::kSucceeded
                                                                    : ProgramEnd::kFailed;
}

}  // namespace tightloop
