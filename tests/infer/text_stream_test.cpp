#include "infer/text_stream.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/random.h"
#include "data/byte_tokenizer.h"
#include "tokenizer/byte_fallback.h"

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

std::string streamed(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                     std::span<const int32_t> before = {}, std::vector<std::string> stops = {}) {
  TextStream stream(tokenizer, std::move(stops), before);
  std::string out;
  for (const int32_t id : ids) {
    const std::string more = stream.add(id);
    EXPECT_EQ(more.find("\xef\xbf\xbd"), std::string::npos) << more;
    out += more;
    if (stream.stopped()) break;
  }
  out += stream.finish();
  EXPECT_EQ(out, stream.text());
  return out;
}

TEST(TextStream, ByteFallbackStreamsWhatTheWholeDecodes) {
  for (const char* type : {"unigram", "bpe"}) {
    const auto tokenizer = testing::byte_fallback_model(type);
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_EQ(streamed(*tokenizer, tokenizer->encode("a € and 🙂 é")), "a € and 🙂 é");
    Random random(3);
    for (int round = 0; round < 300; ++round) {
      std::string text = testing::mixed_text(random) + testing::mixed_text(random);
      while (text.find("\xef\xbf\xbd") != text.npos) text.erase(text.find("\xef\xbf\xbd"), 3);
      const auto ids = tokenizer->encode(text);
      const std::span<const int32_t> all(ids);
      const std::string whole = tokenizer->decode(ids);
      ASSERT_EQ(streamed(*tokenizer, all), whole);
      // A prompt and its continuation, split anywhere, are the whole text.
      for (size_t cut = 0; cut <= ids.size(); ++cut) {
        const std::string prompt = tokenizer->decode(all.first(cut));
        ASSERT_EQ(prompt + streamed(*tokenizer, all.subspan(cut), all.first(cut)), whole) << cut;
      }
    }
  }
}

TEST(TextStream, SpacesOutlastTokensWithoutText) {
  const auto tokenizer = testing::byte_fallback_model("bpe");
  std::vector<int32_t> ids = tokenizer->encode("cat");
  const int32_t control = *tokenizer->token_id("<s>"), space = *tokenizer->token_id("\xe2\x96\x81");
  for (int i = 0; i < 20; ++i) ids.push_back(control);
  for (int i = 0; i < 20; ++i) ids.push_back(space);
  for (const int32_t id : tokenizer->encode("dog")) ids.push_back(id);
  EXPECT_EQ(streamed(*tokenizer, ids), tokenizer->decode(ids));
}

TEST(TextStream, StopsInBytesAcrossTokens) {
  const auto tokenizer = testing::byte_fallback_model("bpe");
  EXPECT_EQ(streamed(*tokenizer, tokenizer->encode("a cat € and a 🙂 dog"), {}, {"🙂 d"}),
            "a cat € and a ");
  EXPECT_EQ(streamed(*tokenizer, tokenizer->encode("a cat €"), {}, {"€€"}), "a cat €");
}

TEST(TextStream, BytesThatNeverBecomeACharacterAreFlushed) {
  const auto tokenizer = testing::byte_fallback_model("bpe");
  auto ids = tokenizer->encode("a €");
  ids.pop_back();
  EXPECT_EQ(streamed(*tokenizer, ids), "a \xe2\x82");
  const auto more = tokenizer->encode(" cat");
  ids.insert(ids.end(), more.begin(), more.end());
  EXPECT_EQ(streamed(*tokenizer, ids), tokenizer->decode(ids));
}

/// Tokens of several letters: each id is one of these.
class WordTokenizer : public testing::ByteTokenizer {
 public:
  explicit WordTokenizer(std::vector<std::string> words) : words_(std::move(words)) {}
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += words_[static_cast<size_t>(id)];
    return text;
  }

 private:
  std::vector<std::string> words_;
};

TEST(TextStream, BordersOfTokensDoNotDecideWhichStopStringCounts) {
  const WordTokenizer tokenizer({"one", "abc", "ab", "c"});
  for (const std::vector<std::string>& stops :
       {std::vector<std::string>{"abc", "b"}, {"b", "abc"}, {"bc", "b", "eab"}}) {
    const std::string expected = stops.back() == "eab" ? "on" : "onea";
    EXPECT_EQ(streamed(tokenizer, std::vector<int32_t>{0, 1}, {}, stops), expected);
    EXPECT_EQ(streamed(tokenizer, std::vector<int32_t>{0, 2, 3}, {}, stops), expected);
  }
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
    std::vector<std::string> words;
    for (size_t at = 0; at < text.size(); at += words.back().size())
      words.push_back(text.substr(at, 1 + random.below(6)));
    std::vector<int32_t> ids(words.size());
    std::iota(ids.begin(), ids.end(), 0);
    ASSERT_EQ(streamed(WordTokenizer(words), ids, {}, stops), text.substr(0, first))
        << text << " " << stops[0] << " " << stops[1];
  }
}

}  // namespace
}  // namespace tightloop
