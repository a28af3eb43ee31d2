#include "data/batch/fit.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/error.h"
#include "core/random.h"

namespace tightloop {

namespace {

/// Documents to choose from, by length and then by arrival.
class FitBuffer {
 public:
  struct Document {
    uint64_t length, arrival, position;
    bool operator<(const Document& other) const {
      return length != other.length ? length < other.length : arrival < other.arrival;
    }
  };

  size_t size() const { return documents_.size(); }
  bool empty() const { return documents_.empty(); }
  void add(uint64_t length, uint64_t position) { documents_.insert({length, arrivals_++, position}); }

  /// The longest of at most `room` tokens, the earliest of several.
  std::optional<Document> take_longest(uint64_t room) {
    const auto behind = documents_.lower_bound({room + 1, 0, 0});
    if (behind == documents_.begin()) return {};
    return take(documents_.lower_bound({std::prev(behind)->length, 0, 0}));
  }
  Document take_shortest() { return take(documents_.begin()); }

 private:
  Document take(std::set<Document>::iterator at) {
    const Document taken = *at;
    documents_.erase(at);
    return taken;
  }

  std::set<Document> documents_;
  uint64_t arrivals_ = 0;
};

}  // namespace

RowFit::RowFit(const Documents& documents, RowKind kind, int64_t length, std::optional<uint64_t> seed) {
  const bool crop = kind == RowKind::kFitCrop;
  const size_t least = crop ? 1000 : 100, batch = crop ? 128 : 1;
  const auto capacity = static_cast<uint64_t>(length) + 1;
  const uint64_t count = documents.size();
  std::optional<Permutation> order;
  if (seed && count > 0) order.emplace(count, *seed);
  FitBuffer buffer;
  uint64_t next = 0;
  const auto refill = [&] {
    while (buffer.size() < least && next < count) {
      for (size_t i = 0; i < batch && next < count; ++i, ++next) {
        const uint64_t document = order ? (*order)[next] : next;
        uint64_t tokens = documents.length(document);
        // What is longer than a row would never fit.
        if (const auto most = static_cast<uint64_t>(length); !crop && tokens > most)
          ++cut_documents, cut_tokens += tokens - most, tokens = most;
        if (tokens > 0) buffer.add(tokens, documents.begin(document));
      }
    }
  };
  for (refill(); !buffer.empty(); refill()) {
    uint64_t room = capacity;
    for (; room > 0; refill()) {
      if (const auto fits = buffer.take_longest(room)) {
        pieces.push_back({fits->position, static_cast<int64_t>(fits->length)});
        room -= fits->length;
      } else if (crop && !buffer.empty()) {
        const auto cut = buffer.take_shortest();
        pieces.push_back({cut.position, static_cast<int64_t>(room)});
        ++cut_documents, cut_tokens += cut.length - room;
        room = 0;
      } else {
        break;
      }
    }
    if (capacity - room < 2) {  // one token predicts nothing
      pieces.pop_back();
      continue;
    }
    filled += capacity - room;
    row_begins.push_back(pieces.size());
  }
}

namespace {

class FitRows : public RowPlan {
 public:
  FitRows(RowKind kind, std::shared_ptr<const Documents> documents, int64_t length, int32_t pad_id,
          std::optional<uint64_t> seed)
      : RowPlan(length),
        documents_(std::move(documents)),
        pad_id_(pad_id),
        fit_(*documents_, kind, length, seed) {
    if (rows() == 0) throw data_error("there is no document to make rows from.");
  }
  uint64_t rows() const override { return fit_.row_begins.size() - 1; }
  double padding_share() const override {
    const auto room = static_cast<double>(rows()) * static_cast<double>(length_ + 1);
    return 1 - static_cast<double>(fit_.filled) / room;
  }
  uint64_t long_documents() const override { return fit_.cut_documents; }
  uint64_t cut_tokens() const override { return fit_.cut_tokens; }

  RowFacts fill(uint64_t row, uint64_t /*shift*/, const RowSpace& space) const override {
    RowFacts facts{1, 0, 0, documents_->source_at(fit_.pieces[fit_.row_begins[row]].position)};
    int64_t at = 0;
    for (uint64_t i = fit_.row_begins[row]; i < fit_.row_begins[row + 1]; ++i) {
      const FitPiece& piece = fit_.pieces[i];
      const int64_t inputs = std::min(piece.count, length_ - at);
      documents_->read(piece.position, inputs, space.inputs + at);
      if (inputs < piece.count) documents_->read(piece.position + inputs, 1, space.targets + length_ - 1);
      const int64_t skipped = at == 0 ? 1 : 0;  // the first token of a row is nobody's target
      if (piece.count > skipped)
        facts.supervised += static_cast<int64_t>(documents_->read_mask(
            piece.position + skipped, piece.count - skipped, space.loss_mask + at - 1 + skipped));
      at += piece.count;
    }
    const int64_t held = std::min(at, length_);
    std::memcpy(space.targets, space.inputs + 1, (held - 1) * sizeof(int32_t));
    facts.padding = length_ - held;
    std::fill(space.inputs + held, space.inputs + length_, pad_id_);
    if (at <= length_) {
      std::fill(space.targets + at - 1, space.targets + length_, pad_id_);
      std::fill(space.loss_mask + at - 1, space.loss_mask + length_, uint8_t{0});
    }
    space.bounds[0] = space.first + static_cast<int32_t>(length_);
    return facts;
  }
  std::string origin(uint64_t row, uint64_t /*shift*/) const override {
    std::vector<uint64_t> numbers;
    for (uint64_t i = fit_.row_begins[row]; i < fit_.row_begins[row + 1]; ++i)
      numbers.push_back(documents_->document_at(fit_.pieces[i].position));
    return origins_of(*documents_, numbers);
  }

 private:
  std::shared_ptr<const Documents> documents_;
  int32_t pad_id_;
  RowFit fit_;
};

}  // namespace

std::unique_ptr<RowPlan> make_fit_rows(RowKind kind, std::shared_ptr<const Documents> documents,
                                       int64_t length, int32_t pad_id, std::optional<uint64_t> seed) {
  return std::make_unique<FitRows>(kind, std::move(documents), length, pad_id, seed);
}

}  // namespace tightloop
