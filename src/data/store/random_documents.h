#pragma once

#include <vector>

#include "data/store/documents.h"

namespace tightloop {

/// Endless nonsense for measuring speed: ids drawn evenly from a vocabulary, as documents of 1,024 tokens or
/// of given lengths, one after the other and over again.
class RandomDocuments : public Documents {
 public:
  RandomDocuments(int64_t vocab_size, uint64_t documents, uint64_t seed,
                  std::vector<uint64_t> lengths = {1024})
      : vocab_size_(static_cast<uint64_t>(vocab_size)),
        documents_(documents),
        seed_(seed),
        lengths_(std::move(lengths)) {}

  uint64_t size() const override { return documents_; }
  uint64_t begin(uint64_t document) const override;
  void read(uint64_t position, uint64_t count, int32_t* ids) const override;
  uint64_t read_mask(uint64_t position, uint64_t count, uint8_t* mask) const override;
  int32_t source(uint64_t) const override { return 0; }

 private:
  uint64_t vocab_size_, documents_, seed_;
  std::vector<uint64_t> lengths_;
};

}  // namespace tightloop
