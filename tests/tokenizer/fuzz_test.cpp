// Random damage, over and over. TIGHTLOOP_FUZZ_RUNS says how often (a few thousand otherwise).
#include <cstdlib>

#include "core/files.h"
#include "core/random.h"
#include "support.h"
#include "tokenizer/bpe.h"
#include "tokenizer/hf_json.h"
#include "tokenizer/unicode/nfc.h"

namespace tightloop {
namespace {

uint64_t runs(uint64_t otherwise) {
  const char* set = std::getenv("TIGHTLOOP_FUZZ_RUNS");
  return set ? std::strtoull(set, nullptr, 10) : otherwise;
}

/// Bytes that are likely to mean something where they land.
std::string snippet(Random& random) {
  static const std::string kSome[] = {"\"",
                                      "{",
                                      "}",
                                      "[",
                                      "]",
                                      ":",
                                      ",",
                                      "-1",
                                      "1e99",
                                      "null",
                                      "true",
                                      "2097151",
                                      "\\u0000",
                                      "\\ud83d",
                                      "\xC4\xA0",
                                      " ",
                                      "\n",
                                      "'",
                                      "'ll",
                                      "'\xC5\xBF",
                                      "\xE4\xB8\xAD",
                                      "\xCC\x81",
                                      "\xE1\x84\x92\xE1\x85\xA1",
                                      "\xF0\x9F\x98\x80",
                                      "\xED\xA0\x80",
                                      "\xF4\x90\x80\x80",
                                      "\xC0\x80",
                                      "<|endoftext|>",
                                      "<|",
                                      "\r\n",
                                      "A",
                                      "a",
                                      "1"};
  const uint64_t kind = random.below(std::size(kSome) + 4);
  if (kind < std::size(kSome)) return kSome[kind];
  return std::string(1 + random.below(3), static_cast<char>(random.below(256)));
}

TEST(TokenizerFuzz, a_damaged_file_is_a_data_error_or_a_tokenizer) {
  // Small, so that damage hits what matters: three merges and one added token over ten bytes.
  const std::string good =
      R"({"added_tokens":[{"id":12,"content":"<|endoftext|>","special":true,"normalized":false,
"lstrip":false,"rstrip":true,"single_word":false}],"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence",
"pretokenizers":[{"type":"Split","pattern":{"Regex":"[0-9]|\\p{L}+"},"behavior":"Isolated","invert":false},
{"type":"ByteLevel","add_prefix_space":false,"use_regex":true}]},"post_processor":null,"model":{"type":"BPE",
"dropout":null,"unk_token":null,"ignore_merges":true,"vocab":{"a":0,"b":1,"c":2,"Ġ":3,"'":4,"l":5,"1":6,"ab":7,"abc":8,
"Ġab":9,"ä":10,"Ã":11},"merges":["a b",["ab","c"],"Ġ ab"]}})";
  Random random(1);
  uint64_t read = 0;
  for (uint64_t i = runs(3000); i > 0; --i) {
    std::string bytes = good;
    for (uint64_t n = random.below(5); n > 0; --n) {
      const size_t at = random.below(bytes.size());
      if (random.below(2))
        bytes.replace(at, random.below(6), snippet(random));
      else if (random.below(8) == 0)
        bytes.resize(at);
      else
        bytes[at] = static_cast<char>(random.below(256));
      if (bytes.empty()) bytes = "{";
    }
    try {
      const Bpe tokenizer(parse_hf_json(bytes, "fuzz"), "fuzz");
      tokenizer.decode(tokenizer.encode("abc ab'll 11 \xC3\xA4<|endoftext|> "));
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ExitCode::kData) << error.what();
    }
  }
  EXPECT_GT(read, 0u);
}

TEST(TokenizerFuzz, any_bytes_are_scanned_whole) {
  Random random(2);
  constexpr SplitPattern kAll[] = {SplitPattern::kGpt2,  SplitPattern::kCl100k, SplitPattern::kCl100kHf,
                                   SplitPattern::kO200k, SplitPattern::kQwen,   SplitPattern::kNanochat,
                                   SplitPattern::kNone};
  for (uint64_t i = runs(20000); i > 0; --i) {
    std::string text;
    for (uint64_t n = random.below(12); n > 0; --n) text += snippet(random);
    const std::string exact(text.data(),
                            text.size());  // its own allocation: reading past the end is seen by ASan
    for (const SplitPattern pattern : kAll) {
      size_t size = 0;
      scan(pattern, exact, [&](std::string_view piece) {
        ASSERT_EQ(piece.data(), exact.data() + size);
        ASSERT_GT(piece.size(), 0u);
        size += piece.size();
      });
      ASSERT_EQ(size, exact.size());
    }
    const std::string once = to_nfc(exact);
    ASSERT_EQ(to_nfc(once), once);
  }
}

}  // namespace
}  // namespace tightloop
