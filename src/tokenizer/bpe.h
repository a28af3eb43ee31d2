#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/merge.h"
#include "tokenizer/regex_split.h"
#include "tokenizer/tokenizer.h"

namespace tightloop {

/// Byte-level BPE. Any bytes can be encoded, and decode() gives them back (but for normalizers and bytes that
/// the vocabulary lacks).
class Bpe : public Tokenizer {
 public:
  /// A data error, which names `source`, when the parts do not fit together.
  Bpe(BpeModel model, const std::string& source);
  ~Bpe() override;

  using Tokenizer::encode;
  int32_t vocab_size() const override { return static_cast<int32_t>(model_.tokens.size()); }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    encode(text, ids, SpecialText::kDefault);
  }
  void encode(std::string_view text, std::vector<int32_t>& ids, SpecialText special) const override;
  bool encode_with_ends(std::string_view text, std::vector<int32_t>& ids,
                        std::vector<uint32_t>& ends) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::optional<int32_t> token_id(std::string_view token) const override;
  std::vector<int32_t> token_bytes() const override;
  int32_t end_of_text() const override;
  uint64_t fingerprint() const override;

  const BpeModel& model() const { return model_; }

 protected:
  /// Writes tokenizer.json, as Hugging Face tokenizers has it, and tokenizer_config.json where that does not
  /// say it all.
  void write(const std::filesystem::path& folder) const override;

 private:
  struct Scratch;
  class Run;
  /// Scratch memory lent to the calls under way: each takes one by an atomic exchange, so that no thread
  /// waits and caches stay warm whichever thread comes next.
  struct alignas(64) Slot {
    std::atomic<Scratch*> scratch{nullptr};
  };

  void index_tokens(const std::string& source);
  /// The token between documents, where `named` is what tokenizer_config.json names.
  std::optional<int32_t> find_end_of_text(const std::string& named) const;
  void find_crossings();
  void find_exceptions();

  BpeModel model_;
  std::string source_;
  MergeTable table_;
  AddedTokens added_raw_, added_normalized_;
  std::unordered_map<std::string_view, int32_t> ids_by_bytes_;
  std::array<int32_t, 256> byte_ids_;
  std::vector<uint32_t> token_bytes_;
  std::bitset<65536> crossings_;  // the byte pairs inside of some token
  bool lacks_bytes_ = false;
  std::unordered_map<std::string_view, int32_t>
      exceptions_;  // whole pieces that merging would not make (ignore_merges)
  std::vector<std::unique_ptr<RegexSplit>> regexes_;  // beside model_.splits; null where a scanner does it
  std::optional<int32_t> end_of_text_;
  mutable std::array<Slot, 64> slots_;
};

}  // namespace tightloop
