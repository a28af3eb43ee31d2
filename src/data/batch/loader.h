#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/batch/batch.h"
#include "data/batch/rows.h"
#include "data/batch/sample_order.h"
#include "data/data_config.h"
#include "data/prefetcher.h"
#include "data/store/documents.h"

namespace tightloop {

struct LoaderOptions {
  int64_t rows = 8;       // in a micro-batch, of this rank
  int64_t seq_len = 256;  // batches are row_length() long: seq_len, or seq_len - 1 for kPad
  RowKind rows_kind = RowKind::kStream;
  int32_t pad_id = 0;
  uint64_t seed = 0;
  bool shuffle = true;      // false: the rows in order, one pass, the last batch filled up with masked rows
  bool keep_order = false;  // documents and rows in their order also where passes are endless
  int threads = 2;          // 0: batches are made when they are asked for
  int prefetch = 2;         // batches that each thread may be ahead
  int64_t rank = 0, world = 1;
  int64_t first_batch = 0;                                  // go on from this micro-batch
  std::shared_ptr<const std::vector<int32_t>> token_bytes;  // of each id; null: Batch::bytes stay 0
  std::optional<uint64_t> first_row;    // with this row, where batches before had another size or world
  std::shared_ptr<const RowPlan> plan;  // of these documents and options, where it is there; null: made
};

/// The options as the configuration has them; rows, seed, rank, world and first_batch are the caller's.
LoaderOptions loader_options(const DataConfig& config);

/// The rows that a loader with these options takes, to be made once for several of them.
std::shared_ptr<const RowPlan> make_row_plan(const LoaderOptions& options,
                                             std::shared_ptr<const Documents> documents);

/// Micro-batches, prepared ahead by threads. Batch k of rank r is a function of (seed, data, k, r) alone:
/// global row (k * world + r) * rows + i of a sequence that goes over all rows, each pass in another order.
/// With first_row, k counts from first_batch and the sequence goes on from that row.
class Loader {
 public:
  Loader(std::shared_ptr<const Documents> documents, const LoaderOptions& options);

  /// The next micro-batch, valid until the next call. Waits if it is not ready. Only for endless (shuffled)
  /// loaders, or while batches() have not all been taken.
  const Batch& next();
  /// The same, and nothing after the last batch.
  const Batch* try_next();

  /// A micro-batch once more, made by this thread; and where each of its rows comes from, for messages. From
  /// first_batch on.
  const Batch& again(int64_t index);
  std::vector<std::string> origins(int64_t index) const;

  /// Batches of one pass: the whole of it when not shuffled (the last may be padded).
  int64_t batches() const;
  /// Rows of the sequence that all ranks have had before micro-batch `index`.
  uint64_t rows_before(int64_t index) const {
    return first_row_ +
           static_cast<uint64_t>((index - options_.first_batch) * options_.world * options_.rows);
  }
  int64_t world() const { return options_.world; }
  /// Which of all processes' micro-batches `index` is here.
  int64_t part(int64_t index) const { return index * options_.world + options_.rank; }
  const RowPlan& plan() const { return *plan_; }
  int64_t row_length() const { return plan_->length(); }
  /// Seconds that callers of next() have waited, and that the threads had nothing to do.
  double wait_seconds() const { return prefetcher_->wait_seconds(); }
  double idle_seconds() const { return prefetcher_->idle_seconds(); }
  /// How many batches were ready when one was taken; see Prefetcher.
  const QueueDepth& depth() const { return prefetcher_->depth(); }

 private:
  void fill(int64_t index, Batch& batch) const;
  SampleAt row_at(int64_t index, int64_t row) const;
  uint64_t shift_of(const SampleAt& row) const;
  Batch make_slot();

  const LoaderOptions options_;
  const uint64_t first_row_;
  std::shared_ptr<const RowPlan> plan_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;  // of a slot each
  std::vector<Batch> slots_;
  std::optional<Batch> again_;
  std::unique_ptr<Prefetcher>
      prefetcher_;  // last, so that its threads stop before anything they use goes away
};

}  // namespace tightloop
