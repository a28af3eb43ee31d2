#include "infer/text_stream.h"

#include <gtest/gtest.h>

#include "core/random.h"
#include "data/byte_tokenizer.h"

namespace tightloop {
namespace {

std::vector<std::string> parts(const std::string& text, std::vector<std::string> stops) {
  const testing::ByteTokenizer tokenizer;
  TextStream stream(tokenizer, std::move(stops));
  std::vector<std::string> out;
  for (const char c : text) {
    out.push_back(stream.add(static_cast<unsigned char>(c)));
    if (stream.stopped()) return out;
  }
  out.push_back(stream.finish());
  return out;
}

std::string whole(const std::string& text, std::vector<std::string> stops) {
  std::string out;
  for (const auto& part : parts(text, std::move(stops))) out += part;
  return out;
}

TEST(TextStream, PassesTextOnAtOnce) { EXPECT_EQ(parts("ab", {}), (std::vector<std::string>{"a", "b", ""})); }

TEST(TextStream, StopsAcrossTokens) {
  EXPECT_EQ(whole("one END two", {"END"}), "one ");
  EXPECT_EQ(whole("one EN two", {"END"}), "one EN two");
  EXPECT_EQ(whole("EEND", {"END"}), "E");
  EXPECT_EQ(whole("ababac.", {"abac"}), "ab");
  EXPECT_EQ(whole("x EN", {"END"}), "x EN") << "kept back, and given out at the end";
  EXPECT_EQ(whole("a b c", {"c", "b c", "b"}), "a ");
}

TEST(TextStream, NothingOfAStopStringIsEverShown) {
  const auto shown = parts("ab#", {"b##"});
  EXPECT_EQ(shown, (std::vector<std::string>{"a", "", "", "b#"}));
}

TEST(TextStream, CharactersArriveWhole) {
  EXPECT_EQ(parts("é🙂", {}), (std::vector<std::string>{"", "é", "", "", "", "🙂", ""}));
  EXPECT_EQ(whole("broken \xF0\x9F", {}), "broken \xF0\x9F");
  EXPECT_EQ(whole("\x80\x80\x80\x80", {}), "\x80\x80\x80\x80");
}

// Against a search in the whole text.
TEST(TextStream, AgreesWithASearch) {
  Random random(5);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 30; ++i) text += static_cast<char>('a' + random.below(3));
    std::vector<std::string> stops;
    size_t first = std::string::npos;
    for (int i = 0; i < 2; ++i) {
      std::string stop;
      for (uint64_t length = 1 + random.below(5); length > 0; --length)
        stop += static_cast<char>('a' + random.below(3));
      stops.push_back(stop);
    }
    // The first end of a stop string decides, and of those that end there the first beginning.
    for (size_t end = 1; end <= text.size() && first == std::string::npos; ++end)
      for (const auto& stop : stops)
        if (std::string_view(text).substr(0, end).ends_with(stop)) first = std::min(first, end - stop.size());
    ASSERT_EQ(whole(text, stops), text.substr(0, first)) << text << " " << stops[0] << " " << stops[1];
  }
}

}  // namespace
}  // namespace tightloop
