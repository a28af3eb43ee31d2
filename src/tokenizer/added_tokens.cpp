#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/hash.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop {

namespace {

size_t pair_at(std::string_view text, size_t at) {
  return static_cast<uint8_t>(text[at]) << 8 | static_cast<uint8_t>(text[at + 1]);
}

/// Where the character before `at` begins.
size_t before(std::string_view text, size_t at) {
  for (size_t length = 1; length <= std::min<size_t>(4, at); ++length) {
    const Char c = decode_char(text.data() + at - length, text.data() + at);
    if (c.point != kInvalid && c.length == length) return at - length;
  }
  return at - 1;
}

CharClass class_at(std::string_view text, size_t at, uint32_t* length) {
  const Char c = decode_char(text.data() + at, text.data() + text.size());
  *length = c.length;
  return c.point == kInvalid ? CharClass::kOther : class_table()(c.point);
}

/// Letters, marks, numbers and the joining punctuation that \w has besides.
bool is_word_char(std::string_view text, size_t at) {
  uint32_t length;
  const CharClass kind = class_at(text, at, &length);
  if (kind != CharClass::kOther) return kind != CharClass::kSpace;
  const Char c = decode_char(text.data() + at, text.data() + text.size());
  constexpr uint32_t kJoining[] = {'_',    0x203F, 0x2040, 0x2054, 0xFE33, 0xFE34,
                                   0xFE4D, 0xFE4E, 0xFE4F, 0xFF3F, 0x200C, 0x200D};
  return std::find(std::begin(kJoining), std::end(kJoining), c.point) != std::end(kJoining);
}

}  // namespace

size_t AddedTokens::Hash::operator()(std::string_view text) const { return hash64(text); }

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  std::set<size_t, std::greater<>> lengths;
  for (const AddedToken& token : tokens_) {
    const std::string& content = token.content;
    by_content_.try_emplace(content, &token);
    lengths.insert(content.size());
    starts_[static_cast<uint8_t>(content[0])] = true;
    if (content.size() > 1) {
      pairs_.set(pair_at(content, 0));
    } else {
      for (int second = 0; second < 256; ++second) pairs_.set(static_cast<uint8_t>(content[0]) << 8 | second);
    }
  }
  lengths_.assign(lengths.begin(), lengths.end());
  if (std::count(starts_.begin(), starts_.end(), true) == 1)
    only_start_ = static_cast<int>(std::find(starts_.begin(), starts_.end(), true) - starts_.begin());
}

const AddedToken* AddedTokens::longest_at(std::string_view text, size_t at) const {
  const size_t left = text.size() - at;
  if (left > 1 && !pairs_.test(pair_at(text, at))) return nullptr;
  for (const size_t length : lengths_) {
    if (length > left) continue;
    const auto found = by_content_.find(text.substr(at, length));
    if (found != by_content_.end()) return found->second;
  }
  return nullptr;
}

std::optional<AddedTokens::Found> AddedTokens::find(std::string_view text, size_t search, size_t from) const {
  for (size_t at = search; at < text.size();) {
    if (only_start_ >= 0) {
      const void* found = std::memchr(text.data() + at, only_start_, text.size() - at);
      if (!found) return std::nullopt;
      at = static_cast<const char*>(found) - text.data();
    } else if (!starts_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    const AddedToken* token = longest_at(text, at);
    if (!token) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at = end;
    if (end <= from) continue;
    if (token->single_word) {
      if (begin > 0 && is_word_char(text, before(text, begin))) continue;
      if (end < text.size() && is_word_char(text, end)) continue;
    }
    uint32_t length;
    while (token->lstrip && begin > from && class_at(text, before(text, begin), &length) == CharClass::kSpace)
      begin = before(text, begin);
    while (token->rstrip && end < text.size() && class_at(text, end, &length) == CharClass::kSpace)
      end += length;
    return Found{std::max(begin, from), end, at, token->id};
  }
  return std::nullopt;
}

}  // namespace tightloop
