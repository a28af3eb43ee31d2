#include <nlohmann/json.hpp>

#include "core/files.h"
#include "core/random.h"
#include "support.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/hf_json.h"
#include "tokenizer/openai_files.h"

namespace tightloop {
namespace {

using nlohmann::json;
using testing::error_of;
using testing::TempFolder;

/// A tokenizer.json of 256 bytes and three merges.
json small_file() {
  json vocab;
  for (int b = 0; b < 256; ++b) vocab[to_byte_alphabet(std::string(1, static_cast<char>(b)))] = b;
  vocab["ab"] = 256, vocab["abc"] = 257, vocab["\u0120ab"] = 258;
  return {{"version", "1.0"},
          {"added_tokens", {{{"id", 259}, {"content", "<|end|>"}, {"special", true}, {"normalized", false}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"model",
           {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", "ab c", json::array({"\u0120", "ab"})}}}}};
}

BpeModel parse(const json& file) { return parse_hf_json(file.dump(), "t.json"); }
std::vector<int32_t> ids(const json& file, std::string_view text) {
  return Bpe(parse(file), "t.json").encode(text);
}

TEST(HfJson, reads_merges_in_both_spellings) {
  EXPECT_EQ(ids(small_file(), "abc ab<|end|>"), (std::vector<int32_t>{257, 258, 259}));
}

TEST(HfJson, refuses_by_name_what_it_does_not_do) {
  const auto refused = [](auto change) {
    json file = small_file();
    change(file);
    return error_of(ExitCode::kData, [&] { Bpe(parse(file), "t.json"); });
  };
  const std::pair<std::function<void(json&)>, const char*> kCases[] = {
      {[](json& f) { f["model"]["type"] = "Unigram"; }, "Unigram"},
      {[](json& f) { f["model"]["type"] = "WordPiece"; }, "WordPiece"},
      {[](json& f) { f["model"]["dropout"] = 0.1; }, "dropout"},
      {[](json& f) { f["model"]["byte_fallback"] = true; }, "byte_fallback"},
      {[](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }, "end_of_word_suffix"},
      {[](json& f) { f["model"]["continuing_subword_prefix"] = "##"; }, "continuing_subword_prefix"},
      {[](json& f) {
         f["normalizer"] = {{"type", "NFKC"}};
       },
       "NFKC"},
      {[](json& f) {
         f["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
       },
       "Sequence"},
      {[](json& f) {
         f["pre_tokenizer"] = {{"type", "Metaspace"}};
       },
       "Metaspace"},
      {[](json& f) { f["pre_tokenizer"] = nullptr; }, "ByteLevel"},
      {[](json& f) {
         f["pre_tokenizer"] = {{"type", "Sequence"},
                               {"pretokenizers", {{{"type", "Metaspace"}}, f["pre_tokenizer"]}}};
       },
       "Metaspace"},
      {[](json& f) {
         f["pre_tokenizer"] = {{"type", "Split"},
                               {"pattern", {{"Regex", "x"}}},
                               {"behavior", "MergedWithNext"},
                               {"invert", false}};
       },
       "MergedWithNext"},
      {[](json& f) {
         f["pre_tokenizer"] = {{"type", "Split"},
                               {"pattern", {{"Regex", "x{2}|y{1,3}+"}}},
                               {"behavior", "Isolated"},
                               {"invert", false}};
       },
       "y{1,3}+"},
      {[](json& f) { f["model"].erase("vocab"); }, "vocab"},
      {[](json& f) { f["model"].erase("merges"); }, "merges"},
      {[](json& f) { f.erase("model"); }, "model"},
      {[](json& f) { f["model"]["vocab"]["x"] = -1; }, "-1"},
      {[](json& f) { f["model"]["vocab"]["x"] = 1e15; }, "vocab"},
      {[](json& f) { f["model"]["vocab"]["x"] = int64_t{1} << 40; }, "1099511627776"},
      {[](json& f) { f["model"]["vocab"]["xyz"] = 5; }, "two tokens"},
      {[](json& f) { f["model"]["merges"].push_back("nothing"); }, "nothing"},
      {[](json& f) { f["model"]["merges"].push_back("x y"); }, "'x' and 'y'"},
      {[](json& f) {
         f["model"]["merges"].push_back({"a", "b", "c"});
       },
       "pair"},
      {[](json& f) { f["model"]["merges"] = "a b"; }, "merges"},
      {[](json& f) { f["model"]["unk_token"] = "<nope>"; }, "unk_token"},
      {[](json& f) { f["added_tokens"][0].erase("content"); }, "content"},
      {[](json& f) { f["added_tokens"][0]["id"] = int64_t{1} << 31; }, "<|end|>"},
      {[](json& f) { f["added_tokens"][0]["special"] = "yes"; }, "special"},
  };
  for (const auto& [change, name] : kCases) {
    const std::string message = refused(change);
    EXPECT_NE(message.find(name), std::string::npos) << message << " does not say " << name;
    EXPECT_NE(message.find("t.json"), std::string::npos) << message;
  }
}

// Vocabularies have gaps (cl100k_base, for one), and a model may choose an id in one.
TEST(HfJson, an_id_in_a_gap_stands_for_nothing) {
  auto file = small_file();
  file["added_tokens"][0]["id"] = 300;
  const Bpe tokenizer(parse_hf_json(file.dump(), "t.json"), "t.json");
  const auto ids = tokenizer.encode("abc");
  auto with_gaps = ids;
  with_gaps.insert(with_gaps.begin(), 299);
  with_gaps.push_back(259);
  EXPECT_EQ(tokenizer.decode(with_gaps), "abc");
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{280}), "");
  error_of(ExitCode::kData, [&] { tokenizer.decode(std::vector<int32_t>{301}); });
  error_of(ExitCode::kData, [&] { tokenizer.decode(std::vector<int32_t>{-1}); });
}

TEST(HfJson, survives_any_damage) {
  for (const std::string bytes : {"", "[]", "{", "null", "{\"model\":1}", "{\"model\":{\"vocab\":[]}}",
                                  "\xFF\xFE", "{\"a\":\"\\ud800\"}"})
    error_of(ExitCode::kData, [&] { parse_hf_json(bytes, "t.json"); });
  error_of(ExitCode::kData, [&] { parse_hf_json(std::string(100'000, '['), "t.json"); });
  const std::string good = small_file().dump();
  Random random(1);
  for (int i = 0; i < 300; ++i) {
    std::string bad = good;
    for (uint64_t n = 1 + random.below(4); n > 0; --n)
      bad[random.below(bad.size())] = static_cast<char>(random.below(256));
    if (random.below(3) == 0) bad.resize(random.below(bad.size()));
    try {
      Bpe(parse_hf_json(bad, "t.json"), "t.json").encode("abc ab");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
    }
  }
}

TEST(HfJson, keeps_all_when_written_again) {
  json file = small_file();
  file["normalizer"] = {{"type", "NFC"}};
  file["model"]["ignore_merges"] = true;
  file["model"]["unk_token"] = "ab";
  file["post_processor"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}};
  file["added_tokens"].push_back({{"id", 270},
                                  {"content", "\u4e2d "},
                                  {"special", false},
                                  {"normalized", true},
                                  {"lstrip", true},
                                  {"rstrip", true},
                                  {"single_word", true}});
  file["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"},
         {"pattern", {{"Regex", "[0-9]{2}"}}},
         {"behavior", "Isolated"},
         {"invert", false}},
        {{"type", "Split"}, {"pattern", {{"String", "a.b"}}}, {"behavior", "Isolated"}, {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}}}};
  const Bpe first(parse(file), "t.json");
  TempFolder folder;
  first.save(folder.path());
  const auto second = load_tokenizer(folder / "tokenizer.json");
  EXPECT_EQ(second->fingerprint(), first.fingerprint());
  const auto written = json::parse(read_file(folder / "tokenizer.json"));
  EXPECT_EQ(written["post_processor"], file["post_processor"]);
  EXPECT_EQ(second->vocab_size(), 271);
  EXPECT_EQ(second->token_id("\u4e2d "), 270);
  EXPECT_EQ(second->decode(std::vector<int32_t>{265}), "") << "a hole stays one";
  EXPECT_EQ(second->decode(std::vector<int32_t>{97, 265, 98}), "ab");
}

TEST(HfJson, what_tokenizer_config_says_is_saved_too) {
  TempFolder folder, saved;
  json file = small_file();
  file["added_tokens"].push_back({{"id", 260}, {"content", "<|bos|>"}, {"special", true}});
  write_file_whole(folder / "tokenizer.json", file.dump());
  const auto without = load_tokenizer(folder.path());
  write_file_whole(folder / "tokenizer_config.json", R"({"eos_token": {"content": "<|end|>"}})");
  const auto first = load_tokenizer(folder.path());
  EXPECT_EQ(without->end_of_text(), 260);
  EXPECT_EQ(first->end_of_text(), 259);
  EXPECT_NE(first->fingerprint(), without->fingerprint());
  first->save(saved.path());
  EXPECT_EQ(load_tokenizer(saved.path())->end_of_text(), 259);
  EXPECT_EQ(load_tokenizer(saved.path())->fingerprint(), first->fingerprint());
  for (const char* bad : {"{\"eos_token\": ", R"({"tightloop": {"parse_added": 3}})"}) {
    write_file_whole(folder / "tokenizer_config.json", bad);
    error_of(ExitCode::kData, [&] { load_tokenizer(folder.path()); });
  }
}

TEST(HfJson, transformers_writes_10_to_the_30_where_there_is_no_longest_text) {
  TempFolder folder;
  write_file_whole(folder / "tokenizer.json", small_file().dump());
  write_file_whole(folder / "tokenizer_config.json",
                   R"({"eos_token": "<|end|>", "model_max_length": 1000000000000000019884624838656})");
  EXPECT_EQ(load_tokenizer(folder.path())->end_of_text(), 259);
}

TEST(HfJson, prefix_space_and_no_split) {
  json file = small_file();
  file["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_EQ(ids(file, "ab"), std::vector<int32_t>{258});
  EXPECT_EQ(ids(file, " ab"), std::vector<int32_t>{258});
  EXPECT_EQ(ids(file, "<|end|>ab"), (std::vector<int32_t>{259, 258}));
  EXPECT_TRUE(ids(file, "").empty());
}

TEST(AddedTokens, leftmost_longest_and_their_white_space) {
  const auto token = [](const char* content, int32_t id, bool single = false, bool left = false,
                        bool right = false) {
    return AddedToken{content, id, true, false, single, left, right};
  };
  const AddedTokens added(
      {token("<a", 1), token("<a>", 2), token("word", 3, true), token("[S]", 4, false, true, true)});
  const auto all = [&](std::string_view text) {
    std::vector<std::array<size_t, 3>> found;
    size_t from = 0, search = 0;
    while (const auto one = added.find(text, search, from)) {
      found.push_back({one->begin, one->end, static_cast<size_t>(one->id)});
      from = one->end, search = one->search;
    }
    return found;
  };
  using Found = std::vector<std::array<size_t, 3>>;
  EXPECT_EQ(all("<<a><a"), (Found{{1, 4, 2}, {4, 6, 1}}));
  EXPECT_EQ(all("word sword word1 (word)"), (Found{{0, 4, 3}, {18, 22, 3}}));
  EXPECT_EQ(all("w\xC2\x85 [S] \n[S]x"), (Found{{1, 9, 4}, {9, 12, 4}}));
  EXPECT_EQ(all("w\xFF[S]"), (Found{{2, 5, 4}}));
  EXPECT_EQ(all(""), Found{});
}

TEST(Gpt2Files, reads_a_folder_and_says_what_is_wrong) {
  TempFolder folder;
  json vocab = small_file()["model"]["vocab"];
  vocab["<|endoftext|>"] = 259;
  write_file_whole(folder / "vocab.json", vocab.dump());
  write_file_whole(folder / "merges.txt", "#version: 0.2\na b\r\nab c\n\u0120 ab\n");
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->encode("abc ab"), (std::vector<int32_t>{257, 258}));
  EXPECT_EQ(tokenizer->end_of_text(), 259);
  EXPECT_GT(tokenizer->encode("<|endoftext|>").size(), 1u);
  EXPECT_EQ(load_tokenizer(folder / "vocab.json")->fingerprint(), tokenizer->fingerprint());
  TempFolder saved;
  tokenizer->save(saved.path());
  const auto again = load_tokenizer(saved.path());
  EXPECT_EQ(again->encode("ab<|endoftext|>"), tokenizer->encode("ab<|endoftext|>"));
  EXPECT_EQ(again->fingerprint(), tokenizer->fingerprint());
  fs::remove(saved / "tokenizer_config.json");
  EXPECT_NE(load_tokenizer(saved.path())->fingerprint(), tokenizer->fingerprint());
  write_file_whole(folder / "merges.txt", "a b\nzz\n");
  EXPECT_NE(error_of(ExitCode::kData, [&] { load_tokenizer(folder.path()); }).find("line 2"),
            std::string::npos);
  write_file_whole(folder / "merges.txt", "a b\nq q\n");
  EXPECT_NE(error_of(ExitCode::kData, [&] { load_tokenizer(folder.path()); }).find("line 2"),
            std::string::npos);
  write_file_whole(folder / "vocab.json", "{\"a\": \"b\"}");
  error_of(ExitCode::kData, [&] { load_tokenizer(folder.path()); });
}

TEST(Tiktoken, reads_ranks_and_exports_them) {
  TempFolder folder;
  std::string lines;
  const char* const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int b = 0; b < 256; ++b) lines += fmt::format("{}{}== {}\n", digits[b >> 2], digits[(b & 3) << 4], b);
  lines += "YWI= 256\nYWJj 257\nIGFi 258\n";  // ab, abc, " ab"
  write_file_whole(folder / "cl100k_base.tiktoken", lines);
  const auto tokenizer = load_tokenizer(folder / "cl100k_base.tiktoken");
  EXPECT_EQ(tokenizer->encode("abc ab"), (std::vector<int32_t>{257, 258}));
  EXPECT_EQ(tokenizer->vocab_size(), 100277);
  EXPECT_EQ(tokenizer->end_of_text(), 100257);
  EXPECT_EQ(tokenizer->encode("<|fim_prefix|>", SpecialText::kParse), std::vector<int32_t>{100258});
  EXPECT_GT(tokenizer->encode("<|fim_prefix|>").size(), 1u);
  TempFolder exported;
  tokenizer->save(exported.path());
  const auto again = load_tokenizer(exported.path());
  EXPECT_EQ(again->fingerprint(), tokenizer->fingerprint());
  EXPECT_EQ(again->encode("ab<|fim_prefix|>"), tokenizer->encode("ab<|fim_prefix|>"));
  EXPECT_TRUE(dynamic_cast<const Bpe&>(*again).model().same_rank);
  EXPECT_EQ(load_tokenizer(folder.path())->fingerprint(),
            tokenizer->fingerprint());  // the only one in the folder
  write_file_whole(folder / "mine.tiktoken", lines);
  EXPECT_NE(error_of(ExitCode::kData, [&] { load_tokenizer(folder / "mine.tiktoken"); }).find("split"),
            std::string::npos);
  for (const char* bad :
       {"YWI=\n", "Y!I= 3\n", "YWI= x\n", "YWI= -1\n", "YWI= 99999999999\n", "YWI 3\n", "YWI= 255\n"}) {
    write_file_whole(folder / "gpt2.tiktoken", lines + bad);
    EXPECT_NE(error_of(ExitCode::kData, [&] { load_tokenizer(folder / "gpt2.tiktoken"); }).find("line 260"),
              std::string::npos);
  }
}

TEST(LoadTokenizer, says_what_is_missing) {
  TempFolder folder;
  EXPECT_NE(error_of(ExitCode::kData, [&] { load_tokenizer(folder / "no.json"); }).find("no.json"),
            std::string::npos);
  error_of(ExitCode::kData, [&] { load_tokenizer(folder.path()); });
  write_file_whole(folder / "text.txt", "x");
  error_of(ExitCode::kData, [&] { load_tokenizer(folder / "text.txt"); });
  write_file_whole(folder / "bad.model", "not a model");
  EXPECT_NE(error_of(ExitCode::kData, [&] { load_tokenizer(folder / "bad.model"); }).find("SentencePiece"),
            std::string::npos);
  write_file_whole(folder / "bad.model", "");
  error_of(ExitCode::kData, [&] { load_tokenizer(folder / "bad.model"); });
}

TEST(ByteAlphabet, every_byte_has_its_own_character) {
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_EQ(from_byte_alphabet(to_byte_alphabet(all)), all);
  EXPECT_EQ(to_byte_alphabet(" a\n"), "\u0120a\u010a");
  EXPECT_EQ(from_byte_alphabet("a b"), std::nullopt);
  EXPECT_EQ(from_byte_alphabet("\u4e2d"), std::nullopt);
}

}  // namespace
}  // namespace tightloop
