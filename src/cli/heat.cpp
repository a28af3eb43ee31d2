#include "cli/heat.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/terminal/plain.h"
#include "core/terminal/terminal.h"

namespace tightloop::cli {

namespace {

// From pale to red in the 256 colours of terminals; the loss of a guess among 1000 tokens, ln 1000, is red.
constexpr int kHeat[] = {255, 230, 229, 228, 222, 216, 210, 203, 196};
constexpr double kHot = 6.9;
constexpr std::string_view kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

int level(double loss, int levels) {
  return std::clamp(static_cast<int>(loss / kHot * levels), 0, levels - 1);
}

std::string painted(const std::string& text, const TokenLoss& token, bool colour) {
  if (!colour) return text;
  if (!token.learned) return fmt::format("\033[2m{}\033[0m", text);
  return fmt::format("\033[38;5;16;48;5;{}m{}\033[0m", kHeat[level(token.loss, std::size(kHeat))], text);
}

// Columns that text takes, as far as counting characters can tell.
size_t width(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t columns) {
  const size_t used = width(text);
  return used < columns ? text + std::string(columns - used, ' ') : text;
}

}  // namespace

std::string one_line(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else {
      out += c;
    }
  }
  return out;
}

std::string loss_table(const std::vector<TokenLoss>& tokens, bool colour) {
  std::string out = fmt::format("{:>5} {:>7} {} {:>4} {:>8} {:>6}  {}\n", "at", "id", padded("token", 18),
                                "mask", "loss", "rank", "likeliest");
  for (const auto& token : tokens) {
    const std::string text = "'" + one_line(token.text) + "'";
    out +=
        fmt::format("{:>5} {:>7} {} {:>4} {:>8.4f} {:>6}  '{}'\n", token.position, token.id,
                    painted(text, token, colour) + std::string(18 - std::min<size_t>(18, width(text)), ' '),
                    token.learned ? 1 : 0, token.loss, token.rank, one_line(token.best));
  }
  return out;
}

std::string heat_strip(const std::vector<TokenLoss>& tokens, bool colour) {
  std::string out;
  for (const auto& token : tokens) {
    if (colour) {
      out += painted(one_line(token.text), token, true);
      if (token.text.ends_with('\n')) out += "\n";
    } else {
      out += token.learned ? in_locale(std::string(kBlocks[level(token.loss, std::size(kBlocks))])) : ".";
    }
  }
  return out;
}

}  // namespace tightloop::cli
