#pragma once

#include <array>
#include <bitset>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/bpe_model.h"

namespace tightloop {

/// Finds added tokens in text: the leftmost, and of those the longest.
class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens);

  AddedTokens(const AddedTokens&) = delete;
  AddedTokens& operator=(const AddedTokens&) = delete;

  bool empty() const { return tokens_.empty(); }

  struct Found {
    size_t begin, end;  // with the white space that the token takes
    size_t search;      // where the next search starts: white space that was taken can still begin a token
    int32_t id;
  };
  /// The first token at or after `search`. `from`: how far the text is used up.
  std::optional<Found> find(std::string_view text, size_t search, size_t from) const;

 private:
  struct Hash {
    size_t operator()(std::string_view text) const;
  };
  const AddedToken* longest_at(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string_view, const AddedToken*, Hash> by_content_;
  std::vector<size_t> lengths_;  // of the contents, longest first
  std::array<bool, 256> starts_{};
  std::bitset<65536> pairs_;  // the first two bytes
  int only_start_ = -1;       // where all begin with the same byte
};

}  // namespace tightloop
