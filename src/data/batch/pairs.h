#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/prefetcher.h"
#include "data/store/documents.h"

namespace tightloop {

/// A micro-batch of sentences and their translations, padded to the longest of each side (rounded up to the
/// bucket). Valid until the batch is given back.
struct PairBatch {
  int64_t index = 0;
  int64_t rows = 0, source_length = 0, target_length = 0;
  int32_t* source = nullptr;          // (rows, source_length): <s> ... </s>, padded
  int32_t* source_lengths = nullptr;  // (rows): tokens without padding
  int32_t* inputs = nullptr;          // (rows, target_length): the translation without its last token
  int32_t* targets = nullptr;         // (rows, target_length): the translation without its first token
  int32_t* target_lengths = nullptr;  // (rows): positions without padding
  int64_t supervised = 0;             // sum of target_lengths
  int64_t padding = 0;                // cells of `source` and `inputs` that hold no token
};

struct PairOptions {
  int64_t batch_tokens = 4096;  // most cells of one side
  int64_t max_length = 256;     // pairs with a longer side are left out
  int64_t bucket = 0;           // lengths are rounded up to a multiple; 0: the plan chooses
  int32_t pad_id = 0;
  uint64_t seed = 0;
  bool shuffle = true;  // false: one pass, in order of the plan
  int threads = 2, prefetch = 2;
  int64_t rank = 0, world = 1;
  int64_t first_batch = 0;
  std::optional<uint64_t> first_global;  // of the sequence below, where the world was another one before
};

/// Which pairs share a batch. Pairs are taken in an order shuffled by the seed, a large window at a time; in
/// a window they are sorted by length and cut into batches that keep both sides under the budget. Computed
/// from lengths alone. Large buckets make few shapes, small ones little padding: where the options name none,
/// it is the largest of 8, 4, 2 and 1 that keeps padding of the first window under a tenth.
class PairPlan {
 public:
  PairPlan(const Documents& documents, const PairOptions& options);

  uint64_t batches() const { return begins_.size() - 1; }
  std::span<const uint32_t> pairs(uint64_t batch) const {
    return std::span(order_).subspan(begins_[batch], begins_[batch + 1] - begins_[batch]);
  }
  int64_t bucket() const { return bucket_; }
  uint64_t long_pairs() const { return long_pairs_; }
  double padding_share() const { return padding_share_; }
  uint64_t most_rows() const { return most_rows_; }

 private:
  int64_t longest(const PairOptions& options) const;
  /// Plans for the first `pairs` of the shuffled order.
  void make(const Documents& documents, const PairOptions& options, uint64_t pairs);

  std::vector<uint32_t> order_;  // pair numbers, batch after batch
  std::vector<uint64_t> begins_;
  int64_t bucket_ = 0;
  uint64_t long_pairs_ = 0, most_rows_ = 0;
  double padding_share_ = 0;
};

/// Batches of pairs, prepared ahead by threads; documents 2i and 2i + 1 are pair i. Batch k of rank r is
/// batch k * world + r of a sequence that goes over all batches of the plan, each pass in another order. With
/// first_global, k counts from first_batch and the sequence goes on from there.
class PairLoader {
 public:
  PairLoader(std::shared_ptr<const Documents> documents, const PairOptions& options);

  const PairBatch& next();
  const PairBatch* try_next();  // nothing after the last of an unshuffled pass
  /// As of Loader.
  const PairBatch& again(int64_t index);
  std::vector<std::string> origins(int64_t index) const;
  int64_t batches() const;  // of one pass, of this rank
  /// Batches of the sequence that all ranks have had before batch `index`.
  uint64_t batches_before(int64_t index) const {
    return first_global_ + static_cast<uint64_t>((index - options_.first_batch) * options_.world);
  }
  int64_t world() const { return options_.world; }
  /// As of Loader.
  int64_t part(int64_t index) const { return index * options_.world + options_.rank; }
  const PairPlan& plan() const { return plan_; }
  double wait_seconds() const { return prefetcher_->wait_seconds(); }
  double idle_seconds() const { return prefetcher_->idle_seconds(); }
  /// How many batches were ready when one was taken; see Prefetcher.
  const QueueDepth& depth() const { return prefetcher_->depth(); }

 private:
  void fill(int64_t index, PairBatch& batch) const;
  std::span<const uint32_t> pairs_at(int64_t index) const;
  PairBatch make_slot();

  const PairOptions options_;
  const uint64_t first_global_;
  std::shared_ptr<const Documents> documents_;
  const PairPlan plan_;
  std::vector<std::unique_ptr<int32_t[]>> memory_;  // of a slot each
  std::vector<PairBatch> slots_;
  std::optional<PairBatch> again_;
  std::unique_ptr<Prefetcher> prefetcher_;  // last, as in Loader
};

}  // namespace tightloop
