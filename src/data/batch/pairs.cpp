#include "data/batch/pairs.h"

#include <algorithm>

#include "core/error.h"
#include "core/random.h"
#include "data/batch/sample_order.h"

namespace tightloop {

namespace {

constexpr uint64_t kWindowPairs = 1 << 15;

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

struct PairLengths {
  int64_t source, target;  // target: positions, one less than tokens
};

PairLengths lengths_of(const Documents& documents, uint64_t pair) {
  return {static_cast<int64_t>(documents.length(2 * pair)),
          static_cast<int64_t>(documents.length(2 * pair + 1)) - 1};
}

}  // namespace

PairPlan::PairPlan(const Documents& documents, const PairOptions& options) {
  constexpr double kMostPadding = 0.1;
  const uint64_t pairs = documents.size() / 2;
  if (pairs > UINT32_MAX) throw data_error("{} pairs are more than a plan can hold.", pairs);
  bucket_ = options.bucket;
  if (bucket_ == 0) {
    for (bucket_ = 8; bucket_ > 1; bucket_ /= 2) {
      make(documents, options, std::min(pairs, kWindowPairs));
      if (padding_share_ < kMostPadding) break;
    }
  }
  make(documents, options, pairs);
  if (batches() > 0) return;
  if (long_pairs_ == 0) throw data_error("there is no pair to learn from.");
  throw data_error(
      "all {} pairs have a side of more than {} tokens (data.seq_len and data.batch_tokens decide).",
      long_pairs_, longest(options));
}

int64_t PairPlan::longest(const PairOptions& options) const {
  return std::min(options.max_length, options.batch_tokens / bucket_ * bucket_);
}

void PairPlan::make(const Documents& documents, const PairOptions& options, uint64_t pairs) {
  order_.clear();
  begins_ = {0};
  long_pairs_ = most_rows_ = 0;
  const Permutation shuffled(documents.size() / 2, options.seed);
  std::vector<std::pair<PairLengths, uint32_t>> window;
  uint64_t filled = 0, cells = 0;
  const auto close = [&](PairLengths padded) {
    const uint64_t rows = order_.size() - begins_.back();
    if (rows == 0) return;
    begins_.push_back(order_.size());
    most_rows_ = std::max(most_rows_, rows);
    cells += rows * (padded.source + padded.target);
  };
  const auto cut = [&] {
    // By the longer side first, so that batches hold the budget's worth of rows; then by how far the sides
    // are apart, up and down in turn, so that a batch that goes on into the next length finds pairs like its
    // own. Ties keep their shuffled order.
    const auto key = [&](const PairLengths& l) {
      const int64_t longer = round_up(std::max(l.source, l.target), bucket_);
      const int64_t apart = round_up(l.source, bucket_) - round_up(l.target, bucket_);
      return std::pair(longer, longer / bucket_ % 2 ? apart : -apart);
    };
    std::ranges::stable_sort(window,
                             [&](const auto& a, const auto& b) { return key(a.first) > key(b.first); });
    PairLengths longest{0, 0};
    for (const auto& [lengths, pair] : window) {
      const PairLengths grown{std::max(longest.source, round_up(lengths.source, bucket_)),
                              std::max(longest.target, round_up(lengths.target, bucket_))};
      const auto rows = static_cast<int64_t>(order_.size() - begins_.back()) + 1;
      if (rows * std::max(grown.source, grown.target) > options.batch_tokens) {
        close(longest);
        longest = {round_up(lengths.source, bucket_), round_up(lengths.target, bucket_)};
      } else {
        longest = grown;
      }
      order_.push_back(pair);
      filled += lengths.source + lengths.target;
    }
    close(longest);
    window.clear();
  };
  const int64_t limit = longest(options);
  for (uint64_t i = 0; i < pairs; ++i) {
    const uint64_t pair = shuffled[i];
    const PairLengths lengths = lengths_of(documents, pair);
    if (lengths.source > limit || lengths.target > limit) {
      ++long_pairs_;
    } else {
      window.push_back({lengths, static_cast<uint32_t>(pair)});
    }
    if (window.size() == kWindowPairs) cut();
  }
  cut();
  padding_share_ = cells == 0 ? 0 : 1 - static_cast<double>(filled) / static_cast<double>(cells);
}

PairLoader::PairLoader(std::shared_ptr<const Documents> documents, const PairOptions& options)
    : options_(options),
      first_global_(options.first_global.value_or(options.first_batch * options.world)),
      documents_(std::move(documents)),
      plan_(*documents_, options) {
  const int threads = std::max(0, options.threads);
  const int slots = std::max(2, threads * options.prefetch + 1);
  for (int i = 0; i < slots; ++i) slots_.push_back(make_slot());
  prefetcher_ =
      std::make_unique<Prefetcher>(threads, slots, options.first_batch, options.shuffle ? -1 : batches(),
                                   [this](int64_t index, int slot) { fill(index, slots_[slot]); });
}

PairBatch PairLoader::make_slot() {
  const auto cells = static_cast<uint64_t>(options_.batch_tokens), rows = plan_.most_rows();
  memory_.push_back(std::make_unique_for_overwrite<int32_t[]>(3 * cells + 2 * rows));
  PairBatch slot;
  slot.source = memory_.back().get();
  slot.inputs = slot.source + cells;
  slot.targets = slot.inputs + cells;
  slot.source_lengths = slot.targets + cells;
  slot.target_lengths = slot.source_lengths + rows;
  return slot;
}

int64_t PairLoader::batches() const {
  return (static_cast<int64_t>(plan_.batches()) + options_.world - 1) / options_.world;
}

std::span<const uint32_t> PairLoader::pairs_at(int64_t index) const {
  const uint64_t global = batches_before(index) + options_.rank;
  // Ranks beyond the end of an unshuffled pass get a batch without rows.
  if (!options_.shuffle && global >= plan_.batches()) return {};
  return plan_.pairs(sample_at(global, plan_.batches(), options_.seed, options_.shuffle).sample);
}

void PairLoader::fill(int64_t index, PairBatch& batch) const {
  const auto pairs = pairs_at(index);
  batch.index = index;
  batch.rows = static_cast<int64_t>(pairs.size());
  batch.source_length = batch.target_length = batch.supervised = batch.padding = 0;
  for (const uint32_t pair : pairs) {
    const PairLengths lengths = lengths_of(*documents_, pair);
    batch.source_length = std::max(batch.source_length, round_up(lengths.source, plan_.bucket()));
    batch.target_length = std::max(batch.target_length, round_up(lengths.target, plan_.bucket()));
  }
  for (int64_t r = 0; r < batch.rows; ++r) {
    const PairLengths lengths = lengths_of(*documents_, pairs[r]);
    int32_t* source = batch.source + r * batch.source_length;
    int32_t* inputs = batch.inputs + r * batch.target_length;
    int32_t* targets = batch.targets + r * batch.target_length;
    const uint64_t second = documents_->begin(2 * pairs[r] + 1);
    documents_->read(documents_->begin(2 * pairs[r]), lengths.source, source);
    documents_->read(second, lengths.target, inputs);
    documents_->read(second + 1, lengths.target, targets);
    std::fill(source + lengths.source, source + batch.source_length, options_.pad_id);
    std::fill(inputs + lengths.target, inputs + batch.target_length, options_.pad_id);
    std::fill(targets + lengths.target, targets + batch.target_length, options_.pad_id);
    batch.source_lengths[r] = static_cast<int32_t>(lengths.source);
    batch.target_lengths[r] = static_cast<int32_t>(lengths.target);
    batch.supervised += lengths.target;
    batch.padding += batch.source_length - lengths.source + batch.target_length - lengths.target;
  }
}

const PairBatch& PairLoader::again(int64_t index) {
  if (!again_) again_ = make_slot();
  fill(index, *again_);
  return *again_;
}

std::vector<std::string> PairLoader::origins(int64_t index) const {
  std::vector<std::string> texts;
  for (const uint32_t pair : pairs_at(index)) texts.push_back(documents_->origin(2 * uint64_t{pair}));
  return texts;
}

const PairBatch* PairLoader::try_next() {
  const int slot = prefetcher_->next();
  return slot < 0 ? nullptr : &slots_[slot];
}

const PairBatch& PairLoader::next() {
  const PairBatch* batch = try_next();
  if (!batch) throw data_error("the data has ended: {} batches were all of it.", batches());
  return *batch;
}

}  // namespace tightloop
