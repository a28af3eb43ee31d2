#include <charconv>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "core/files.h"
#include "support.h"
#include "tokenizer/bpe.h"

namespace tightloop {
namespace {

std::string from_hex(std::string_view hex) {
  const auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(value(hex[i]) << 4 | value(hex[i + 1]));
  return bytes;
}

/// Cases that tools/compare_tokenizers.py makes: a first line of JSON, then the text in hex and the ids on
/// each line.
TEST(TokenizerCases, ids_are_those_of_the_peers) {
  const char* folder = std::getenv("TIGHTLOOP_TOKENIZER_CASES");
  if (!folder) GTEST_SKIP() << "run by tools/compare_tokenizers.py";
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".cases") continue;
    ++files;
    const MappedFile file(entry.path());
    std::string_view rest = file.text();
    const auto next_line = [&] {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(line.size() + 1);
      return line;
    };
    const auto head = nlohmann::json::parse(next_line());
    const auto tokenizer = load_tokenizer(head["tokenizer"].get<std::string>());
    const std::string mode = head["special"];
    const auto special = mode == "text"    ? SpecialText::kText
                         : mode == "parse" ? SpecialText::kParse
                                           : SpecialText::kDefault;
    const bool exact = !dynamic_cast<const Bpe&>(*tokenizer).model().nfc;
    size_t count = 0, wrong = 0, lost = 0, bytes = 0;
    std::vector<int32_t> ids, expected;
    while (!rest.empty()) {
      const std::string_view line = next_line();
      const size_t hex = line.find(' ');
      const std::string text = from_hex(line.substr(0, hex));
      expected.clear();
      for (const char *p = line.data() + hex + 1, *end = line.data() + line.size(); p < end; ++p)
        p = std::from_chars(p, end, expected.emplace_back()).ptr;
      ids.clear();
      tokenizer->encode(text, ids, special);
      ++count;
      bytes += text.size();
      if (ids != expected && ++wrong <= 3)
        ADD_FAILURE() << entry.path().filename() << ": " << line.substr(0, 2000);
      if (exact && tokenizer->decode(tokenizer->encode(text, SpecialText::kText)) != text) ++lost;
    }
    EXPECT_EQ(wrong, 0u) << entry.path().filename();
    EXPECT_EQ(lost, 0u) << entry.path().filename();
    fmt::print("{:30} {:7} strings {:9} bytes {:6} wrong {:6} not decoded to the same\n",
               entry.path().filename().string(), count, bytes, wrong, lost);
  }
  EXPECT_GT(files, 0u);
}

}  // namespace
}  // namespace tightloop
