#pragma once

#include <memory>

#include "data/store/documents.h"

namespace tightloop {

/// The tokens [first, last) of other documents, as documents: those at the two borders are cut.
class TokenRange : public Documents {
 public:
  TokenRange(std::shared_ptr<const Documents> whole, uint64_t first, uint64_t last);

  uint64_t size() const override { return documents_; }
  uint64_t begin(uint64_t document) const override;
  void read(uint64_t position, uint64_t count, int32_t* ids) const override {
    whole_->read(first_ + position, count, ids);
  }
  uint64_t read_mask(uint64_t position, uint64_t count, uint8_t* mask) const override {
    return whole_->read_mask(first_ + position, count, mask);
  }
  int32_t source(uint64_t document) const override { return whole_->source(first_document_ + document); }
  int32_t source_at(uint64_t position) const override { return whole_->source_at(first_ + position); }
  std::string origin(uint64_t document) const override { return whole_->origin(first_document_ + document); }

 private:
  std::shared_ptr<const Documents> whole_;
  uint64_t first_, last_, first_document_ = 0, documents_ = 0;
};

}  // namespace tightloop
