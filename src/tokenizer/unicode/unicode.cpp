#include "tokenizer/unicode/unicode.h"

#include <map>

namespace tightloop {

namespace {

ClassTable make_table() {
  ClassTable table{};
  std::map<std::array<CharClass, 256>, uint8_t> known;
  size_t range = 0;
  for (uint32_t block = 0; block < table.block_of.size(); ++block) {
    std::array<CharClass, 256> classes;
    for (uint32_t i = 0; i < 256; ++i) {
      const uint32_t point = block * 256 + i;
      while (range + 1 < kClassRanges.size() && kClassRanges[range + 1] / 8 <= point) ++range;
      classes[i] = static_cast<CharClass>(kClassRanges[range] % 8);
    }
    const auto [found, added] = known.try_emplace(classes, static_cast<uint8_t>(known.size()));
    if (added) table.blocks[found->second] = classes;
    table.block_of[block] = found->second;
  }
  return table;
}

}  // namespace

const ClassTable& class_table() {
  static const ClassTable table = make_table();
  return table;
}

bool is_utf8(std::string_view text) {
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const Char c = decode_char(p, end);
    if (c.point == kInvalid) return false;
    p += c.length;
  }
  return true;
}

void append_utf8(std::string& text, uint32_t point) {
  const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6), put(0x80 | (point & 63));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12), put(0x80 | (point >> 6 & 63)), put(0x80 | (point & 63));
  } else {
    put(0xF0 | point >> 18), put(0x80 | (point >> 12 & 63)), put(0x80 | (point >> 6 & 63)),
        put(0x80 | (point & 63));
  }
}

}  // namespace tightloop
