#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/choice.h"

namespace tightloop {

/// What becomes of "<|endoftext|>" and the like where they stand in a text.
enum class SpecialText {
  kDefault,  // as the tokenizer's file has it: Hugging Face parses, GPT-2 folders and tiktoken files do not
  kParse,    // they become their ids
  kText,     // they are spelled out, like any other text
};
template <>
inline constexpr auto kChoices<SpecialText> = std::to_array<Choice<SpecialText>>({
    {SpecialText::kDefault, "default"},
    {SpecialText::kParse, "parse"},
    {SpecialText::kText, "text"},
});

struct ChatTemplateFiles;

/// Text to ids and back. Everything const is safe to call from many threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// One more than the largest id, special tokens included.
  virtual int32_t vocab_size() const = 0;
  /// Appends the ids of `text` to `ids`.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  /// The same, with a say about special tokens.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids, SpecialText special) const = 0;
  /// The same with SpecialText::kParse, and for each id the byte of `text` behind it. (Where a normalizer
  /// changes a text, about there.) False, and nothing is done, where the tokenizer cannot tell.
  virtual bool encode_with_ends(std::string_view, std::vector<int32_t>&, std::vector<uint32_t>&) const {
    return false;
  }
  /// The bytes that the ids stand for (not always valid UTF-8): none for an id in a gap of the vocabulary,
  /// which a model may choose. An id outside of it is a data error.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// The id of a token that is written exactly so ("<|endoftext|>"), special or not.
  virtual std::optional<int32_t> token_id(std::string_view token) const = 0;
  /// By id, the bytes of text that each token spells; 0 for special tokens. Empty where nobody knows.
  virtual std::vector<int32_t> token_bytes() const { return {}; }
  /// The token that separates documents.
  virtual int32_t end_of_text() const = 0;
  /// Writes the files that load_tokenizer() reads into a folder that exists, those of chat() among them.
  void save(const std::filesystem::path& folder) const;
  /// A hash of all that decides ids: equal for equal tokenizers, whatever file they came from.
  virtual uint64_t fingerprint() const = 0;

  std::vector<int32_t> encode(std::string_view text, SpecialText special = SpecialText::kDefault) const {
    std::vector<int32_t> ids;
    encode(text, ids, special);
    return ids;
  }

  /// The chat templates and the special tokens by name that its folder brought; none where it had none.
  const ChatTemplateFiles& chat() const;
  void set_chat(ChatTemplateFiles files);

 protected:
  virtual void write(const std::filesystem::path& folder) const = 0;

 private:
  std::shared_ptr<const ChatTemplateFiles> chat_;
};

/// What may be a token's name, <...> or [...], that the text begins with; empty if it does not.
std::string_view bracketed(std::string_view text);

/// Reads a folder or a file (tokenizer.json; vocab.json + merges.txt; *.tiktoken; *.model; *.gguf).
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

/// ids[i] becomes the ids of texts[i], by several threads (0: all cores).
void encode_batch(const Tokenizer& tokenizer, std::span<const std::string_view> texts,
                  std::vector<std::vector<int32_t>>& ids, int threads,
                  SpecialText special = SpecialText::kDefault);

}  // namespace tightloop
