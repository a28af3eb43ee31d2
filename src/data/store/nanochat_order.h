#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/store/documents.h"

namespace tightloop {

/// A shuffle of [0, size) as NumPy's default_rng(seed).permutation(size) has it. size < 2^32.
std::vector<uint64_t> numpy_permutation(uint64_t size, uint32_t seed);

/// The order in which nanochat's SFT takes the documents of several sources, laid end to end: each source in
/// an order of NumPy's, and all of them together in one of Python's, with 42 as the seed of both. `parts`:
/// how many documents each source has; one that comes several times is as many parts.
std::vector<uint64_t> nanochat_order(const std::vector<uint64_t>& parts);

/// Documents in another order. Nothing is copied.
class ReorderedDocuments : public Documents {
 public:
  /// Document i is documents' order[i].
  ReorderedDocuments(std::shared_ptr<const Documents> documents, std::vector<uint64_t> order);

  uint64_t size() const override { return order_.size(); }
  uint64_t begin(uint64_t document) const override { return begins_[document]; }
  void read(uint64_t position, uint64_t count, int32_t* ids) const override;
  uint64_t read_mask(uint64_t position, uint64_t count, uint8_t* mask) const override;
  int32_t source(uint64_t document) const override { return documents_->source(order_[document]); }
  std::string origin(uint64_t document) const override { return documents_->origin(order_[document]); }

 private:
  template <class Take>
  void for_each(uint64_t position, uint64_t count, const Take& take) const;

  std::shared_ptr<const Documents> documents_;
  std::vector<uint64_t> order_, begins_{0};
};

}  // namespace tightloop
