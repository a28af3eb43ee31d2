#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tightloop {

/// Plain sentences through a SentencePiece unigram model, word by word, with the words seen before in a
/// table: the ids that libsentencepiece gives, some times faster. A segmentation falls apart at spaces where
/// no piece crosses one; what is left to prove is that rounding cannot decide between two segmentations of a
/// word. Where any of that is in doubt (other normalizers, unusual characters, near ties, long texts),
/// encode() says no, and the library must be asked.
class UnigramWords {
 public:
  /// `keeps(text)`: whether the library's normalization leaves a one-character word as it is. Nothing when
  /// the model is not one that can be taken apart.
  static std::unique_ptr<UnigramWords> make(std::string_view model,
                                            const std::function<bool(const std::string&)>& keeps);

  /// Appends the ids of `text` and returns true; or leaves `ids` as it was. Safe from many threads.
  bool encode(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  static constexpr size_t kMaxWord = 64;  // bytes, the mark of the space before it included

  struct Piece {
    int32_t id = -1;
    float score = 0;
  };
  struct Segmented {
    std::array<int32_t, kMaxWord> ids;
    uint32_t count = 0;  // 0: the library must be asked
    float score = 0;     // of the best segmentation, and how far behind the second is
    float margin = 0;
  };
  struct Cache;

  void build(const std::vector<std::pair<std::string, Piece>>& pieces);
  uint32_t child(uint32_t node, unsigned char byte) const;
  size_t safe_length(std::string_view text) const;
  void segment(std::string_view word, Segmented& out) const;
  bool append(std::string_view word, double& sum, std::vector<int32_t>& ids) const;

  uint32_t number_ = 0;                // of this object among all, for the threads' tables
  std::bitset<0x480> safe_;            // characters that normalization leaves alone, by code point
  std::vector<Piece> nodes_;           // of a trie; the root is 0
  std::array<uint32_t, 256> first_{};  // children of the root
  std::vector<std::pair<uint64_t, uint32_t>> edges_;  // (node, byte) -> node: an open hash table
};

}  // namespace tightloop
