#include "tokenizer/openai_files.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "tokenizer/hf_json.h"

namespace tightloop {

namespace {

using Ids = std::unordered_map<std::string_view, int32_t>;

/// Calls body(line, number from 1) for each line, without its end (\n or \r\n).
template <class Body>
void each_line(std::string_view text, Body&& body) {
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    body(line, number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// All tokens that text can never become are special.
void add_unmerged(BpeModel& model) {
  std::vector<bool> made(model.tokens.size());
  for (const MergeRule& rule : model.merges) made[rule.result] = true;
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    const BpeModel::Token& token = model.tokens[id];
    if (token.kind == BpeModel::Token::kAbsent || made[id]) continue;
    if (token.kind == BpeModel::Token::kBytes && token.bytes.size() == 1) continue;
    model.added.push_back({token.bytes, static_cast<int32_t>(id)});
  }
}

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  for (int i = 0; i < 2 && text.back() == '='; ++i) text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const int value = base64_value(c);
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    held += 6;
    if (held >= 8) bytes += static_cast<char>(bits >> (held -= 8) & 255);
  }
  return bytes;
}

struct Encoding {
  std::string_view name;
  size_t ranks;
  SplitPattern pattern;
  std::vector<std::pair<std::string, int32_t>> special;
};

const std::vector<Encoding>& encodings() {
  static const std::vector<Encoding> known = [] {
    const std::string end = "<|endoftext|>";
    std::vector<Encoding> list{
        {"gpt2", 50256, SplitPattern::kGpt2, {{end, 50256}}},
        {"r50k_base", 50256, SplitPattern::kGpt2, {{end, 50256}}},
        {"p50k_base", 50280, SplitPattern::kGpt2, {{end, 50256}}},
        {"cl100k_base",
         100256,
         SplitPattern::kCl100k,
         {{end, 100257},
          {"<|fim_prefix|>", 100258},
          {"<|fim_middle|>", 100259},
          {"<|fim_suffix|>", 100260},
          {"<|endofprompt|>", 100276}}},
        {"o200k_base", 199998, SplitPattern::kO200k, {{end, 199999}, {"<|endofprompt|>", 200018}}},
        {"qwen",
         151643,
         SplitPattern::kQwen,
         {{end, 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}}},
    };
    for (int i = 0; i < 205; ++i) list.back().special.push_back({fmt::format("<|extra_{}|>", i), 151646 + i});
    return list;
  }();
  return known;
}

const Encoding& encoding_of(const std::filesystem::path& path, size_t ranks) {
  for (const Encoding& encoding : encodings())
    if (path.stem() == encoding.name) return encoding;
  for (const Encoding& encoding : encodings())
    if (ranks == encoding.ranks) return encoding;
  throw data_error(
      "'{}' does not say how text is to be split, and its name is not one of gpt2, r50k_base, p50k_base, "
      "cl100k_base, "
      "o200k_base and qwen. Name it after the encoding it belongs to, or use a tokenizer.json.",
      path.string());
}

/// tiktoken merges whatever makes a token. So every way to cut a token in two is a rule, with the token's
/// rank.
void add_all_merges(BpeModel& model) {
  Ids ids;
  for (size_t id = 0; id < model.tokens.size(); ++id)
    if (model.tokens[id].kind != BpeModel::Token::kAbsent)
      ids.emplace(model.tokens[id].bytes, static_cast<int32_t>(id));
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    const std::string_view bytes = model.tokens[id].bytes;
    const size_t first = model.merges.size();
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = ids.find(bytes.substr(0, cut)), right = ids.find(bytes.substr(cut));
      if (left != ids.end() && right != ids.end())
        model.merges.push_back({left->second, right->second, static_cast<int32_t>(id)});
    }
    std::sort(model.merges.begin() + static_cast<std::ptrdiff_t>(first), model.merges.end(),
              [](const MergeRule& a, const MergeRule& b) {
                return a.left != b.left ? a.left < b.left : a.right < b.right;
              });
  }
}

}  // namespace

BpeModel read_gpt2_files(const std::filesystem::path& vocab, const std::filesystem::path& merges) {
  BpeModel model;
  model.parse_added = false;
  simdjson::dom::parser parser;
  simdjson::dom::object tokens;
  const std::string bytes = read_tokenizer_file(vocab);
  if (const auto error = parser.parse(bytes).get(tokens))
    throw data_error("{} is not a JSON object of tokens and ids: {}.", vocab.string(),
                     simdjson::error_message(error));
  Ids ids;
  for (const auto [token, value] : tokens) {
    int64_t id;
    if (value.get(id)) throw data_error("{}: the id of '{}' is not a whole number.", vocab.string(), token);
    set_token(model, token, id, vocab.string());
    ids.emplace(token, static_cast<int32_t>(id));
  }
  const std::string rules = read_tokenizer_file(merges);
  std::string both;
  each_line(rules, [&](std::string_view line, size_t number) {
    if (line.empty() || line.starts_with("#version")) return;
    const size_t space = line.find(' ');
    if (space == std::string_view::npos)
      throw data_error("{}, line {}: '{}' is not two tokens with a space between.", merges.string(), number,
                       line);
    const std::string_view left = line.substr(0, space), right = line.substr(space + 1);
    both.assign(left).append(right);
    const auto l = ids.find(left), r = ids.find(right), result = ids.find(both);
    if (l == ids.end() || r == ids.end() || result == ids.end())
      throw data_error("{}, line {}: a token of '{}' is not in {}.", merges.string(), number, line,
                       vocab.string());
    model.merges.push_back({l->second, r->second, result->second});
  });
  add_unmerged(model);
  return model;
}

BpeModel read_tiktoken(const std::filesystem::path& path) {
  BpeModel model;
  model.parse_added = false;
  model.ignore_merges = true;
  model.same_rank = true;
  size_t ranks = 0;
  const std::string lines = read_tokenizer_file(path);
  each_line(lines, [&](std::string_view line, size_t number) {
    if (line.empty()) return;
    const size_t space = line.find(' ');
    int32_t rank = -1;
    const auto bytes = from_base64(line.substr(0, space));
    const char* const end = line.data() + line.size();
    if (!bytes || space == std::string_view::npos ||
        std::from_chars(line.data() + space + 1, end, rank).ptr != end || rank < 0 || rank >= kTokenLimit)
      throw data_error("{}, line {}: not a token in base64 and its rank.", path.string(), number);
    if (model.tokens.size() <= static_cast<size_t>(rank)) model.tokens.resize(rank + 1);
    if (model.tokens[rank].kind != BpeModel::Token::kAbsent)
      throw data_error("{}, line {}: the rank {} is there twice.", path.string(), number, rank);
    model.tokens[rank] = {*bytes, BpeModel::Token::kBytes};
    ++ranks;
  });
  const Encoding& encoding = encoding_of(path, ranks);
  model.splits = {{encoding.pattern, ""}};
  add_all_merges(model);
  for (const auto& [content, id] : encoding.special) {
    if (model.tokens.size() <= static_cast<size_t>(id)) model.tokens.resize(id + 1);
    if (model.tokens[id].kind != BpeModel::Token::kAbsent)
      throw data_error("{}: the rank {} belongs to the special token {} of {}.", path.string(), id, content,
                       encoding.name);
    model.tokens[id] = {content, BpeModel::Token::kVerbatim};
    model.added.push_back({content, id});
  }
  return model;
}

}  // namespace tightloop
