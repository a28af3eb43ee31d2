#pragma once

#include <string>
#include <vector>

#include "core/error.h"
#include "tokenizer/tokenizer.h"

namespace tightloop::testing {

/// Bytes as ids, 256 as the end of a document, and names from 257 on: all that tests of data/ need of a
/// tokenizer.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(std::vector<std::string> special = {}, int32_t vocab_size = 0)
      : special_(std::move(special)),
        vocab_size_(std::max<int32_t>(vocab_size, 257 + static_cast<int32_t>(special_.size()))) {}

  int32_t vocab_size() const override { return vocab_size_; }
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    encode(text, ids, SpecialText::kDefault);
  }
  /// Names in the text become ids by default, as with Hugging Face's files.
  void encode(std::string_view text, std::vector<int32_t>& ids, SpecialText special) const override {
    while (!text.empty()) {
      size_t length = 1;
      int32_t id = static_cast<unsigned char>(text[0]);
      for (size_t i = 0; special != SpecialText::kText && i < special_.size(); ++i)
        if (text.starts_with(special_[i])) id = 257 + static_cast<int32_t>(i), length = special_[i].size();
      ids.push_back(id);
      text.remove_prefix(length);
    }
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocab_size_) throw data_error("id {} is not in the vocabulary.", id);
      text += id < 256    ? std::string(1, static_cast<char>(id))
              : id == 256 ? "<|endoftext|>"
                          : special_[id - 257];
    }
    return text;
  }
  std::optional<int32_t> token_id(std::string_view token) const override {
    if (token == "<|endoftext|>") return 256;
    for (size_t i = 0; i < special_.size(); ++i)
      if (special_[i] == token) return 257 + static_cast<int32_t>(i);
    if (token.size() == 1) return static_cast<unsigned char>(token[0]);
    return std::nullopt;
  }
  int32_t end_of_text() const override { return 256; }
  bool encode_with_ends(std::string_view text, std::vector<int32_t>& ids,
                        std::vector<uint32_t>& ends) const override {
    const size_t first = ids.size();
    encode(text, ids, SpecialText::kParse);
    uint32_t at = 0;
    for (size_t i = first; i < ids.size(); ++i)
      ends.push_back(at += ids[i] < 257 ? 1 : static_cast<uint32_t>(special_[ids[i] - 257].size()));
    return true;
  }
  uint64_t fingerprint() const override { return 0xb17e + special_.size(); }

 protected:
  void write(const std::filesystem::path&) const override {}

 private:
  std::vector<std::string> special_;
  int32_t vocab_size_;
};

}  // namespace tightloop::testing
