#include "data/batch/rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "data/batch/fit.h"
#include "data/batch/pack.h"

namespace tightloop {

std::string origins_of(const Documents& documents, const std::vector<uint64_t>& numbers) {
  constexpr size_t kMost = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kMost, numbers.size()); ++i)
    text += (i > 0 ? "; " : "") + documents.origin(numbers[i]);
  if (numbers.size() > kMost) text += fmt::format("; {} more", numbers.size() - kMost);
  return text;
}

namespace {

// Inputs, targets and mask of `count` positions from the tokens at `position`; returns how many are to be
// learned.
int64_t copy_positions(const Documents& documents, uint64_t position, int64_t count, const RowSpace& space,
                       int64_t at) {
  int32_t* inputs = space.inputs + at;
  int32_t* targets = space.targets + at;
  documents.read(position, count, inputs);
  std::memcpy(targets, inputs + 1, (count - 1) * sizeof(int32_t));
  documents.read(position + count, 1, targets + count - 1);
  return static_cast<int64_t>(documents.read_mask(position + 1, count, space.loss_mask + at));
}

void pad_positions(const RowSpace& space, int64_t from, int64_t to, int32_t pad_id) {
  std::fill(space.inputs + from, space.inputs + to, pad_id);
  std::fill(space.targets + from, space.targets + to, pad_id);
  std::fill(space.loss_mask + from, space.loss_mask + to, uint8_t{0});
}

class StreamRows : public RowPlan {
 public:
  StreamRows(std::shared_ptr<const Documents> documents, int64_t length)
      : RowPlan(length), documents_(std::move(documents)) {
    const uint64_t tokens = documents_->tokens();
    rows_ = tokens == 0 ? 0 : (tokens - 1) / length;
    if (rows_ == 0) {
      throw data_error(
          "the data has only {} tokens, too few for one row of {}. Add data or lower data.seq_len.", tokens,
          length);
    }
  }
  uint64_t rows() const override { return rows_; }
  double padding_share() const override { return 0; }
  uint64_t long_documents() const override { return 0; }
  RowFacts fill(uint64_t row, uint64_t shift, const RowSpace& space) const override {
    const uint64_t position = begin(row, shift);
    const int64_t supervised = copy_positions(*documents_, position, length_, space, 0);
    space.bounds[0] = space.first + static_cast<int32_t>(length_);
    return {1, supervised, 0, documents_->source_at(position)};
  }
  std::string origin(uint64_t row, uint64_t shift) const override {
    const uint64_t position = begin(row, shift), last = documents_->document_at(position + length_);
    std::vector<uint64_t> numbers;
    for (uint64_t i = documents_->document_at(position); i <= last; ++i) numbers.push_back(i);
    return origins_of(*documents_, numbers);
  }

 private:
  // The last row of a shifted pass slides back to where it still fits.
  uint64_t begin(uint64_t row, uint64_t shift) const {
    return std::min(row * length_ + shift, documents_->tokens() - length_ - 1);
  }
  std::shared_ptr<const Documents> documents_;
  uint64_t rows_;
};

class PaddedRows : public RowPlan {
 public:
  PaddedRows(std::shared_ptr<const Documents> documents, int64_t seq_len, int32_t pad_id)
      : RowPlan(seq_len - 1), documents_(std::move(documents)), pad_id_(pad_id) {
    if (documents_->size() == 0) throw data_error("there is no document to make rows from.");
    for (uint64_t i = 0; i < documents_->size(); ++i) {
      const auto tokens = static_cast<int64_t>(documents_->length(i));
      if (tokens > length_ + 1) ++long_documents_, cut_tokens_ += tokens - length_ - 1;
      filled_ += std::min(tokens, length_);
    }
  }
  uint64_t rows() const override { return documents_->size(); }
  double padding_share() const override {
    return 1 - static_cast<double>(filled_) / (static_cast<double>(rows()) * static_cast<double>(length_));
  }
  uint64_t long_documents() const override { return long_documents_; }
  uint64_t cut_tokens() const override { return cut_tokens_; }
  RowFacts fill(uint64_t row, uint64_t /*shift*/, const RowSpace& space) const override {
    // The last token is an input too, though nothing is predicted from it: X is all tokens but the last of
    // the row.
    const auto tokens = static_cast<int64_t>(documents_->length(row));
    const int64_t predicted = std::clamp<int64_t>(tokens - 1, 0, length_), held = std::min(tokens, length_);
    RowFacts facts{0, 0, length_ - held, documents_->source(row)};
    pad_positions(space, predicted, length_, pad_id_);
    if (predicted > 0)
      facts.supervised = copy_positions(*documents_, documents_->begin(row), predicted, space, 0);
    if (held > predicted) documents_->read(documents_->begin(row) + predicted, 1, space.inputs + predicted);
    if (held > 0) space.bounds[facts.documents++] = space.first + static_cast<int32_t>(held);
    if (held < length_) space.bounds[facts.documents++] = space.first + static_cast<int32_t>(length_);
    return facts;
  }
  std::string origin(uint64_t row, uint64_t /*shift*/) const override { return documents_->origin(row); }

 private:
  std::shared_ptr<const Documents> documents_;
  int32_t pad_id_;
  int64_t filled_ = 0;
  uint64_t long_documents_ = 0, cut_tokens_ = 0;
};

class PackedRows : public RowPlan {
 public:
  PackedRows(std::shared_ptr<const Documents> documents, int64_t length, int32_t pad_id,
             std::optional<uint64_t> seed)
      : RowPlan(length),
        documents_(std::move(documents)),
        pad_id_(pad_id),
        packing_(*documents_, length, seed) {
    if (packing_.row_begins.size() < 2) throw data_error("there is no document to make rows from.");
  }
  uint64_t rows() const override { return packing_.row_begins.size() - 1; }
  double padding_share() const override {
    return 1 - static_cast<double>(packing_.filled) /
                   (static_cast<double>(rows()) * static_cast<double>(length_));
  }
  uint64_t long_documents() const override { return packing_.long_documents; }
  RowFacts fill(uint64_t row, uint64_t /*shift*/, const RowSpace& space) const override {
    RowFacts facts;
    int64_t at = 0;
    const uint64_t first = packing_.row_begins[row], last = packing_.row_begins[row + 1];
    for (uint64_t i = first; i < last; ++i) {
      const Piece& piece = packing_.pieces[i];
      facts.supervised += copy_positions(*documents_, piece.position, piece.count, space, at);
      at += piece.count;
      space.bounds[facts.documents++] = space.first + static_cast<int32_t>(at);
    }
    facts.source = documents_->source_at(packing_.pieces[first].position);
    facts.padding = length_ - at;
    if (at < length_) {
      pad_positions(space, at, length_, pad_id_);
      space.bounds[facts.documents++] = space.first + static_cast<int32_t>(length_);
    }
    return facts;
  }
  std::string origin(uint64_t row, uint64_t /*shift*/) const override {
    std::vector<uint64_t> numbers;
    for (uint64_t i = packing_.row_begins[row]; i < packing_.row_begins[row + 1]; ++i)
      numbers.push_back(documents_->document_at(packing_.pieces[i].position));
    return origins_of(*documents_, numbers);
  }

 private:
  std::shared_ptr<const Documents> documents_;
  int32_t pad_id_;
  RowPacking packing_;
};

}  // namespace

std::unique_ptr<RowPlan> make_row_plan(RowKind kind, std::shared_ptr<const Documents> documents,
                                       int64_t seq_len, int32_t pad_id, std::optional<uint64_t> seed) {
  switch (kind) {
    case RowKind::kStream:
      return std::make_unique<StreamRows>(std::move(documents), seq_len);
    case RowKind::kPad:
      return std::make_unique<PaddedRows>(std::move(documents), seq_len, pad_id);
    case RowKind::kPack:
      return std::make_unique<PackedRows>(std::move(documents), seq_len, pad_id, seed);
    case RowKind::kFitCrop:
    case RowKind::kFitPad:
      break;
  }
  return make_fit_rows(kind, std::move(documents), seq_len, pad_id, seed);
}

}  // namespace tightloop
