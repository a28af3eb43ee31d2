#pragma once

#include <memory>
#include <vector>

#include "data/store/documents.h"

namespace tightloop {

/// Several sets of documents as one, each as often as its share asks for. Nothing is copied.
class MixedDocuments : public Documents {
 public:
  struct Source {
    std::shared_ptr<const Documents> documents;
    double epochs =
        1;  // how often each document comes in one pass; a fraction takes the first of them once more
    uint64_t cap = 0;  // use only so many documents of it; 0: all
  };

  /// Documents number their source by its place in `sources`. Of pairs (`unit` 2), a sentence and its
  /// translation count as one and stay together.
  explicit MixedDocuments(const std::vector<Source>& sources, uint64_t unit = 1);

  uint64_t size() const override { return first_document_.back(); }
  uint64_t begin(uint64_t document) const override;
  void read(uint64_t position, uint64_t count, int32_t* ids) const override;
  uint64_t read_mask(uint64_t position, uint64_t count, uint8_t* mask) const override;
  /// Documents of each part: of a source that comes several times there are several.
  std::vector<uint64_t> part_sizes() const;
  int32_t source(uint64_t document) const override;
  int32_t source_at(uint64_t position) const override;
  std::string origin(uint64_t document) const override;

 private:
  // The first `documents` of a source; repeated sources have several parts.
  struct Part {
    const Documents* documents;
    int32_t source;
  };

  std::vector<std::shared_ptr<const Documents>> owned_;
  std::vector<Part> parts_;
  std::vector<uint64_t> first_document_{0}, first_token_{0};  // of each part; the last is the total
};

/// How often each source must come so that documents are drawn by these weights and every document comes at
/// least once. Sources without documents get 0.
std::vector<double> epochs_by_weight(const std::vector<uint64_t>& documents,
                                     const std::vector<double>& weights);

}  // namespace tightloop
