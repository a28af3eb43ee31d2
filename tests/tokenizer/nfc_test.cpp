#include "tokenizer/unicode/nfc.h"

#include "core/random.h"
#include "support.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop {
namespace {

std::string utf8(std::u32string_view points) {
  std::string text;
  for (const char32_t point : points) append_utf8(text, point);
  return text;
}

TEST(Nfc, known_examples) {
  EXPECT_EQ(to_nfc(utf8(U"e\u0301")), utf8(U"\u00e9"));
  EXPECT_EQ(to_nfc(utf8(U"q\u0307\u0323")), utf8(U"q\u0323\u0307"));  // marks are put in order
  EXPECT_EQ(to_nfc(utf8(U"\u1112\u1161\u11ab")), utf8(U"\ud55c"));    // Hangul
  EXPECT_EQ(to_nfc(utf8(U"\ud558\u11ab")), utf8(U"\ud55c"));
  EXPECT_EQ(to_nfc(utf8(U"\u212b\u2126")), utf8(U"\u00c5\u03a9"));  // singletons
  EXPECT_EQ(to_nfc(utf8(U"\u0958")), utf8(U"\u0915\u093c"));        // never composed
  EXPECT_EQ(to_nfc(utf8(U"\u1e9b\u0323")), utf8(U"\u1e9b\u0323"));  // blocked
  EXPECT_EQ(to_nfc(utf8(U"a\u0315\u0300\u05ae\u0300b")), utf8(U"\u00e0\u05ae\u0300\u0315b"));
  EXPECT_EQ(to_nfc(utf8(U"\u0301")), utf8(U"\u0301"));
  EXPECT_EQ(to_nfc(""), "");
}

TEST(Nfc, a_quick_yes_is_never_wrong_and_twice_is_once) {
  Random random(1);
  const char32_t bases[] = {0,      0x300,  0x900,  0x1100, 0x1E00, 0x2000,  0x2100,
                            0x3040, 0x4E00, 0xAC00, 0xF900, 0xFB00, 0x11000, 0x1D100};
  for (int i = 0; i < 20000; ++i) {
    std::u32string points;
    const char32_t base = bases[random.below(std::size(bases))];
    for (uint64_t n = random.below(8); n > 0; --n)
      points += random.below(3) ? base + random.below(256) : static_cast<char32_t>(0x300 + random.below(80));
    const std::string text = utf8(points), once = to_nfc(text);
    EXPECT_EQ(to_nfc(once), once);
    EXPECT_TRUE(!surely_nfc(text) || once == text) << text;
  }
}

TEST(Nfc, bytes_that_are_not_text_stay) {
  Random random(2);
  EXPECT_EQ(to_nfc("e\xFF\xCC\x81"), "e\xFF\xCC\x81");  // the mark does not reach over it
  for (int i = 0; i < 2000; ++i) {
    std::string bytes;
    for (uint64_t n = random.below(20); n > 0; --n) bytes += static_cast<char>(0x80 + random.below(0x40));
    EXPECT_EQ(to_nfc(bytes), bytes);
  }
}

}  // namespace
}  // namespace tightloop
