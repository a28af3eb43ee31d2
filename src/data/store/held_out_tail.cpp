#include "data/store/held_out_tail.h"

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/interrupt.h"
#include "data/store/shard_writer.h"
#include "data/store/shards.h"
#include "data/store/source.h"
#include "data/store/token_range.h"

namespace tightloop {

namespace {

/// The tokens [first, last) of a shard as a shard of their own.
void copy_tokens(const fs::path& from, uint64_t first, uint64_t last, const fs::path& to) {
  constexpr uint64_t kPiece = 1 << 16;
  const ShardFooter footer = Shard(from).footer();
  const TokenRange range(std::make_shared<ShardSet>(std::vector{from}, std::nullopt), first, last);
  ShardWriter writer(to, static_cast<int64_t>(footer.vocab_size), footer.tokenizer);
  std::vector<int32_t> ids(kPiece);
  std::vector<uint8_t> mask(kPiece);
  for (uint64_t document = 0; document < range.size(); ++document) {
    const uint64_t end = range.begin(document + 1);
    for (uint64_t at = range.begin(document), count; at < end; at += count) {
      count = std::min(kPiece, end - at);
      range.read(at, count, ids.data());
      range.read_mask(at, count, mask.data());
      writer.extend(std::span(ids).first(count), std::span(mask).first(count));
    }
    writer.close(range.source(document));
  }
  writer.finish();
}

}  // namespace

bool holds_out_tail(const DataConfig& config) {
  const bool tail = config.holdout_by == HoldoutBy::kTail ||
                    (config.holdout_by == HoldoutBy::kAuto && config.source == DataSource::kText);
  if (!tail || config.holdout == 0 || has_val_records(config)) return false;
  if (config.holds_pairs()) throw usage_error("data.holdout_by: tail would cut pairs; use hash.");
  return true;
}

uint64_t tail_begin(const DataConfig& config, uint64_t tokens) {
  constexpr uint64_t kRows = 2;
  constexpr double kMostForRows = 0.3;
  const auto fraction = [&](double of) { return static_cast<uint64_t>(static_cast<double>(tokens) * of); };
  const uint64_t rows = kRows * static_cast<uint64_t>(config.seq_len) + 1;
  return tokens - std::max(fraction(config.holdout), std::min(rows, fraction(kMostForRows)));
}

void cut_tail(const fs::path& folder, uint64_t begin, PrepareProgress& totals) {
  totals.train_documents = totals.train_tokens = totals.val_documents = totals.val_tokens = 0;
  for (uint64_t number = 0, first = 0; number < totals.shards; ++number) {
    throw_if_interrupted();
    const fs::path train = shard_path(folder, "train", number), val = shard_path(folder, "val", number);
    const uint64_t here = Shard(train).footer().tokens, moved = Shard(val).footer().tokens;
    const uint64_t kept = std::clamp(begin, first, first + here) - first;
    if (kept < here) {
      if (moved == 0) copy_tokens(train, kept, here, val);
      copy_tokens(train, 0, kept, train);
    }
    first += moved > 0 ? kept + moved : here;
    const ShardFooter learned = Shard(train).footer(), held_out = Shard(val).footer();
    totals.train_documents += learned.documents, totals.train_tokens += learned.tokens;
    totals.val_documents += held_out.documents, totals.val_tokens += held_out.tokens;
  }
}

}  // namespace tightloop
