#include "core/io/helper_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "core/error.h"

namespace tightloop {

namespace {

/// posix_spawn, for it copies no memory and is safe beside other threads. 0, or the system's error.
int start_process(const std::vector<std::string>& command, int socket, const char* messages, pid_t& pid) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, socket, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, socket, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, messages, O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);

  // Signals that this program catches or ignores mean to the other what they always do.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  const int failure = posix_spawnp(&pid, words[0], &files, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return failure;
}

}  // namespace

HelperProcess::HelperProcess(const std::vector<std::string>& command, const std::filesystem::path& messages,
                             size_t capacity)
    : capacity_(capacity) {
  // A socket, not a pipe: it goes both ways, and a write to one that is closed can do without the signal.
  int ends[2];
  int failure = ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 ? 0 : errno;
  if (failure == 0) {
    failure = start_process(command, ends[1], messages.c_str(), pid_);
    ::close(ends[1]);
    socket_ = ends[0];
  }
  if (failure == 0) return;
  if (socket_ >= 0) ::close(socket_);
  throw usage_error("'{}' cannot be started: {}.", command.front(), std::strerror(failure));
}

HelperProcess::~HelperProcess() {
  ::close(socket_);
  status();
}

void HelperProcess::send(std::string_view line) {
  push();
  if (!open_ || waiting_.size() + line.size() + 1 > capacity_) return void(++dropped_);
  (waiting_ += line) += '\n';
  push();
}

void HelperProcess::push() {
  size_t gone = 0;
  while (open_ && gone < waiting_.size()) {
    const ssize_t written =
        ::send(socket_, waiting_.data() + gone, waiting_.size() - gone, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (written >= 0)
      gone += static_cast<size_t>(written);
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      break;
    else if (errno != EINTR)
      open_ = false;
  }
  waiting_.erase(0, gone);
  if (open_) return;
  dropped_ += std::ranges::count(waiting_, '\n');
  waiting_.clear();
}

std::vector<std::string> HelperProcess::answers() {
  char bytes[4096];
  for (ssize_t got;
       (got = ::recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT)) > 0 || (got < 0 && errno == EINTR);)
    if (got > 0) answer_.append(bytes, static_cast<size_t>(got));
  std::vector<std::string> lines;
  for (size_t end; (end = answer_.find('\n')) != std::string::npos; answer_.erase(0, end + 1))
    lines.push_back(answer_.substr(0, end));
  return lines;
}

std::optional<int> HelperProcess::status() {
  int ended = 0;
  if (!status_ && ::waitpid(pid_, &ended, WNOHANG) == pid_)
    status_ = WIFSIGNALED(ended) ? 128 + WTERMSIG(ended) : WEXITSTATUS(ended);
  return status_;
}

bool HelperProcess::finish(std::chrono::milliseconds patience, std::string_view last_line) {
  constexpr std::chrono::milliseconds kPause{5};
  const auto end = std::chrono::steady_clock::now() + patience;
  if (!last_line.empty()) (waiting_ += last_line) += '\n';
  for (; !status(); std::this_thread::sleep_for(kPause)) {
    push();
    if (open_ && waiting_.empty()) open_ = ::shutdown(socket_, SHUT_WR) != 0;
    if (std::chrono::steady_clock::now() >= end) break;
  }
  open_ = false;
  push();  // counts what it has not taken
  return status().has_value();
}

}  // namespace tightloop
