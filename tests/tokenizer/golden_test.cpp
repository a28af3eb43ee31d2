#include <nlohmann/json.hpp>

#include "core/files.h"
#include "support.h"
#include "tokenizer/bpe.h"
#include "tokenizer/hf_json.h"

namespace tightloop {
namespace {

using nlohmann::json;

const json& golden() {
  static const json file = json::parse(read_file(testing::source_folder() / "tests/golden/tokenizer.json"));
  return file;
}

TEST(TokenizerGolden, ids_are_those_of_hugging_face) {
  ASSERT_EQ(golden()["variants"].size(), 13u);
  for (const json& variant : golden()["variants"]) {
    const std::string name = variant["name"];
    json file = variant["file"];
    file["model"] = golden()["model"];
    const Bpe tokenizer(parse_hf_json(file.dump(), name), name);
    const json& texts = golden()[name.find("_regex") != std::string::npos ? "plain_texts" : "texts"];
    ASSERT_EQ(texts.size(), variant["ids"].size());
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string text = texts[i];
      EXPECT_EQ(tokenizer.encode(text), variant["ids"][i].get<std::vector<int32_t>>())
          << name << ": " << texts[i];
      if (!tokenizer.model().nfc) {
        EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
      }
    }
  }
}

TEST(TokenizerGolden, ids_are_those_of_tiktoken) {
  const std::pair<std::string, std::string> kFiles[] = {
      {"gpt2", "gpt2"}, {"gpt4", "cl100k_base"}, {"o200k", "o200k_base"}, {"qwen", "qwen"}};
  json file = golden()["variants"][0]["file"];
  file["model"] = golden()["model"];
  const BpeModel model = parse_hf_json(file.dump(), "golden");
  // A rank file: all tokens but the special one, in order.
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string lines;
  for (size_t id = 0, rank = 0; id < model.tokens.size(); ++id) {
    const std::string& bytes = model.tokens[id].bytes;
    if (bytes == "<|endoftext|>") continue;
    std::string base64;
    for (size_t i = 0; i < bytes.size(); i += 3) {
      const auto at = [&](size_t j) { return j < bytes.size() ? static_cast<uint8_t>(bytes[j]) : 0u; };
      const uint32_t bits = at(i) << 16 | at(i + 1) << 8 | at(i + 2);
      for (int d = 0; d < 4; ++d) base64 += i + d > bytes.size() ? '=' : digits[bits >> (18 - 6 * d) & 63];
    }
    lines += fmt::format("{} {}\n", base64, rank++);
  }
  testing::TempFolder folder;
  for (const auto& [name, stem] : kFiles) {
    write_file_whole(folder / (stem + ".tiktoken"), lines);
    const auto tokenizer = load_tokenizer(folder / (stem + ".tiktoken"));
    for (const json& peer : golden()["tiktoken"]) {
      if (peer["name"] != name) continue;
      const json& texts = golden()["texts"];
      for (size_t i = 0; i < texts.size(); ++i)
        EXPECT_EQ(tokenizer->encode(texts[i].get<std::string>()), peer["ids"][i].get<std::vector<int32_t>>())
            << name << ": " << texts[i];
    }
  }
}

}  // namespace
}  // namespace tightloop
