#include "data/store/token_range.h"

#include <algorithm>

namespace tightloop {

TokenRange::TokenRange(std::shared_ptr<const Documents> whole, uint64_t first, uint64_t last)
    : whole_(std::move(whole)), first_(first), last_(last) {
  if (first_ == last_) return;
  first_document_ = whole_->document_at(first_);
  documents_ = whole_->document_at(last_ - 1) + 1 - first_document_;
}

uint64_t TokenRange::begin(uint64_t document) const {
  if (documents_ == 0) return 0;
  return std::clamp(whole_->begin(first_document_ + document), first_, last_) - first_;
}

}  // namespace tightloop
