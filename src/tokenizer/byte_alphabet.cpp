#include "tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "tokenizer/unicode/unicode.h"

namespace tightloop {

namespace {

/// Printable bytes stand for themselves, the others for U+0100 and on, in order.
std::array<uint16_t, 256> make_alphabet() {
  std::array<uint16_t, 256> points;
  uint16_t other = 256;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    points[b] = printable ? static_cast<uint16_t>(b) : other++;
  }
  return points;
}

const std::array<uint16_t, 256> kAlphabet = make_alphabet();

}  // namespace

std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) append_utf8(text, kAlphabet[static_cast<uint8_t>(c)]);
  return text;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  static const auto bytes_of = [] {
    std::array<int16_t, 512> bytes;
    bytes.fill(-1);
    for (int b = 0; b < 256; ++b) bytes[kAlphabet[b]] = static_cast<int16_t>(b);
    return bytes;
  }();
  std::string bytes;
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const Char c = decode_char(p, end);
    if (c.point >= bytes_of.size() || bytes_of[c.point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(bytes_of[c.point]));
    p += c.length;
  }
  return bytes;
}

}  // namespace tightloop
