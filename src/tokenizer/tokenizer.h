#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tightloop {

/// Text to ids and back. Everything const is safe to call from many threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// One more than the largest id, special tokens included.
  virtual int32_t vocab_size() const = 0;
  /// Appends the ids of `text` to `ids`.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  /// The bytes that the ids stand for (not always valid UTF-8). An id outside of the vocabulary is a data error.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// The id of a token that is written exactly so ("<|endoftext|>"), special or not.
  virtual std::optional<int32_t> token_id(std::string_view token) const = 0;
  /// The token that separates documents.
  virtual int32_t end_of_text() const = 0;
  /// Writes the files that load_tokenizer() reads into a folder that exists.
  virtual void save(const std::filesystem::path& folder) const = 0;
  /// A hash of all that decides ids: equal for equal tokenizers, whatever file they came from.
  virtual uint64_t fingerprint() const = 0;

  std::vector<int32_t> encode(std::string_view text) const {
    std::vector<int32_t> ids;
    encode(text, ids);
    return ids;
  }
};

/// Reads a tokenizer from a folder or a file (tokenizer.json; vocab.json + merges.txt; *.tiktoken; *.model).
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

}  // namespace tightloop
