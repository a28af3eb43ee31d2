#include "data/store/mixed_documents.h"

#include <algorithm>
#include <cmath>

namespace tightloop {

MixedDocuments::MixedDocuments(const std::vector<Source>& sources, uint64_t unit) {
  for (size_t s = 0; s < sources.size(); ++s) {
    const Documents& documents = *owned_.emplace_back(sources[s].documents);
    uint64_t whole = documents.size() / unit;
    if (sources[s].cap > 0) whole = std::min(whole, sources[s].cap);
    const auto wanted = static_cast<uint64_t>(std::llround(static_cast<double>(whole) * sources[s].epochs));
    for (uint64_t done = 0; done < wanted;) {
      const uint64_t count = std::min(whole, wanted - done) * unit;
      parts_.push_back({&documents, static_cast<int32_t>(s)});
      first_document_.push_back(first_document_.back() + count);
      first_token_.push_back(first_token_.back() + documents.begin(count));
      done += count / unit;
    }
  }
}

uint64_t MixedDocuments::begin(uint64_t document) const {
  const size_t part = part_of(first_document_, document);
  if (part == parts_.size()) return first_token_.back();
  return first_token_[part] + parts_[part].documents->begin(document - first_document_[part]);
}

std::vector<uint64_t> MixedDocuments::part_sizes() const {
  std::vector<uint64_t> sizes;
  for (size_t i = 0; i < parts_.size(); ++i) sizes.push_back(first_document_[i + 1] - first_document_[i]);
  return sizes;
}

int32_t MixedDocuments::source(uint64_t document) const {
  return parts_[part_of(first_document_, document)].source;
}

int32_t MixedDocuments::source_at(uint64_t position) const {
  return parts_[part_of(first_token_, position)].source;
}

std::string MixedDocuments::origin(uint64_t document) const {
  const size_t part = part_of(first_document_, document);
  return parts_[part].documents->origin(document - first_document_[part]);
}

void MixedDocuments::read(uint64_t position, uint64_t count, int32_t* ids) const {
  for (size_t part = part_of(first_token_, position); count > 0; ++part) {
    const uint64_t here = std::min(count, first_token_[part + 1] - position);
    parts_[part].documents->read(position - first_token_[part], here, ids);
    position += here, ids += here, count -= here;
  }
}

uint64_t MixedDocuments::read_mask(uint64_t position, uint64_t count, uint8_t* mask) const {
  uint64_t ones = 0;
  for (size_t part = part_of(first_token_, position); count > 0; ++part) {
    const uint64_t here = std::min(count, first_token_[part + 1] - position);
    ones += parts_[part].documents->read_mask(position - first_token_[part], here, mask);
    position += here, mask += here, count -= here;
  }
  return ones;
}

std::vector<double> epochs_by_weight(const std::vector<uint64_t>& documents,
                                     const std::vector<double>& weights) {
  double total = 0;  // documents of a pass, per unit of weight
  for (size_t i = 0; i < documents.size(); ++i)
    if (weights[i] > 0) total = std::max(total, static_cast<double>(documents[i]) / weights[i]);
  std::vector<double> epochs;
  for (size_t i = 0; i < documents.size(); ++i)
    epochs.push_back(documents[i] > 0 ? total * weights[i] / static_cast<double>(documents[i]) : 0);
  return epochs;
}

}  // namespace tightloop
