#include "cli/output.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "cli/verbs.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/terminal/terminal.h"
#include "train/report/metrics.h"

namespace tightloop::cli {

namespace {

constexpr size_t kMostInput = size_t{1} << 26;

bool nobody_reads() {
  pollfd output{STDOUT_FILENO, 0, 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & POLLERR);
}

[[noreturn]] void fail(int reason) {
  throw_if_interrupted();
  if (reason == EPIPE || nobody_reads()) throw Stop{128 + SIGPIPE};
  throw Error(ExitCode::kFailure,
              reason ? fmt::format("standard output cannot be written: {}. What was printed is not complete.",
                                   std::strerror(reason))
                     : "standard output could not be written. What was printed is not complete.");
}

}  // namespace

void put(std::string_view text) {
  errno = 0;
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) fail(errno);
}

std::string shown(std::string_view text) {
  static const bool terminal = ::isatty(STDOUT_FILENO);
  return terminal ? printable(text) : std::string(text);
}

void finish_output() { put(""); }

std::string input_named(const std::string& name) { return name == "-" ? "/dev/stdin" : name; }

std::string read_standard_input() {
  std::string text;
  std::array<char, 1 << 16> bytes;
  for (;;) {
    throw_if_interrupted();
    const auto got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw data_error("standard input cannot be read: {}.", std::strerror(errno));
    if (got == 0) return text;
    text.append(bytes.data(), static_cast<size_t>(got));
    if (text.size() > kMostInput) throw data_error("standard input has more than 64 MiB.");
  }
}

std::string dump(const nlohmann::json& json, int indent) {
  nlohmann::json spelled = json;
  spell_non_finite(spelled);
  return spelled.dump(indent, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tightloop::cli
