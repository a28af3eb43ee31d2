#include "dist/fault.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <charconv>
#include <new>
#include <system_error>

namespace tightloop {

namespace {

/// The number that ends at the next space, which is taken off as well.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc{} || end == text.data() + text.size() || *end != ' ') return {};
  text.remove_prefix(static_cast<size_t>(end + 1 - text.data()));
  return number;
}

/// The start of a text, without half a character of UTF-8 at its end.
std::string_view cut(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;
  return text.substr(0, most);
}

}  // namespace

std::string Fault::text() const {
  const std::string_view kept = cut(sentence, kMostBytes);
  return fmt::format("{} {} {}{}", rank, static_cast<int>(code), kept,
                     kept.size() < sentence.size() ? "..." : "");
}

std::optional<Fault> Fault::from_text(std::string_view text) {
  const auto rank = take_number(text);
  const auto code = rank ? take_number(text) : std::nullopt;
  if (!code || *code <= 0 || *code > 255) return {};
  return Fault{*rank, static_cast<ExitCode>(*code), std::string(text)};
}

Error last_words(const std::exception& error) {
  if (const auto* known = dynamic_cast<const Error*>(&error)) return *known;
  if (const auto* memory = dynamic_cast<const c10::OutOfMemoryError*>(&error))
    return device_error(
        "the device is out of memory. Try smaller batches: in training a smaller --train.micro_batch with a "
        "larger --train.accumulate, elsewhere --batch or --batch-tokens, where the verb has it. ({})",
        memory->what_without_backtrace());
  if (dynamic_cast<const std::bad_alloc*>(&error))
    return device_error(
        "this machine is out of memory. Try a smaller model or batch (in training: --train.micro_batch).");
  if (const auto* system = dynamic_cast<const std::system_error*>(&error);
      system && (system->code() == std::errc::resource_unavailable_try_again ||
                 system->code() == std::errc::not_enough_memory))
    return device_error(
        "this machine has no memory left, or no room for another thread ({}). Try a smaller model or batch "
        "(in "
        "training: --train.micro_batch), or fewer threads.",
        system->code().message());
  if (const auto* torch = dynamic_cast<const c10::Error*>(&error)) {
    const std::string what = torch->what_without_backtrace();
    if (what.find("allocate memory") != std::string::npos || what.find("overflow") != std::string::npos)
      return device_error(
          "this machine has too little memory for that. Try a smaller model (model.width, model.layers) or "
          "--train.micro_batch; 'tightloop fit RECIPE' tells what fits.");
    return {ExitCode::kFailure, what};
  }
  return {ExitCode::kFailure, error.what()};
}

}  // namespace tightloop
