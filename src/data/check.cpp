#include "data/check.h"

#include <algorithm>
#include <memory>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/terminal/progress_line.h"
#include "data/batch/pairs.h"
#include "data/batch/rows.h"
#include "data/dataset.h"
#include "data/read/named_files.h"
#include "data/store/held_out_tail.h"
#include "data/store/token_range.h"
#include "data/store/tokenize.h"

namespace tightloop {

namespace {

// Documents of which only the lengths and what is to be learned are known: enough for a plan of rows.
class Lengths : public Documents, public DocumentSink {
 public:
  void extend(std::span<const int32_t> ids, std::span<const uint8_t> mask) override {
    mask_bits_.extend(tokens_, ids.size(), mask);
    tokens_ += ids.size();
  }
  void close(int32_t) override { begins_.push_back(tokens_); }
  uint64_t size() const override { return begins_.size() - 1; }
  uint64_t begin(uint64_t document) const override { return begins_[document]; }
  int32_t source(uint64_t) const override { return 0; }
  void read(uint64_t, uint64_t, int32_t*) const override { throw std::logic_error("only lengths are known"); }
  uint64_t read_mask(uint64_t position, uint64_t count, uint8_t* mask) const override {
    const auto& words = mask_bits_.words();
    return TokenView{.mask_bits = words.empty() ? nullptr : words.data()}.read_mask(position, count, mask);
  }

 private:
  std::vector<uint64_t> begins_{0};
  uint64_t tokens_ = 0;
  MaskBits mask_bits_;
};

uint64_t supervised_in(const Documents& documents) {
  std::vector<uint8_t> mask(1 << 16);
  uint64_t supervised = 0;
  for (uint64_t at = 0; at < documents.tokens(); at += mask.size())
    supervised +=
        documents.read_mask(at, std::min<uint64_t>(mask.size(), documents.tokens() - at), mask.data());
  return supervised;
}

void plan(const DataConfig& config, bool pairs_in, const std::shared_ptr<const Documents>& documents,
          PartCheck& part) {
  part.documents = documents->size() / (pairs_in ? 2 : 1);
  part.tokens = documents->tokens();
  try {
    if (pairs_in) {
      PairOptions options;
      options.batch_tokens = config.batch_tokens, options.bucket = config.bucket,
      options.max_length = config.seq_len;
      const PairPlan pairs(*documents, options);
      part.rows = pairs.batches(), part.long_documents = pairs.long_pairs(),
      part.padding_share = pairs.padding_share();
    } else {
      const auto rows =
          make_row_plan(config.rows, documents, config.seq_len, 0,
                        config.order == DocumentOrder::kShuffled ? std::optional<uint64_t>(0) : std::nullopt);
      part.rows = rows->rows(), part.long_documents = rows->long_documents(),
      part.padding_share = rows->padding_share(), part.cut_tokens = rows->cut_tokens();
    }
  } catch (const Error&) {  // not enough for a single row: 0 of them
  }
}

}  // namespace

DataCheck check_data(const SourceOptions& options, bool pairs_in) {
  const DataConfig& config = options.data;
  DataCheck check;
  if (!config.mixture.empty() || config.source == DataSource::kShards) {
    const Dataset dataset =
        load_dataset(config, options.tasks, options.tokenizer, options.chat, options.target_tokenizer);
    ProgressLine progress("Checking tokens", dataset.train->tokens() + dataset.val->tokens(),
                          ProgressLine::Unit::kCount);
    for (auto [documents, part] : {std::pair{dataset.train, &check.train}, {dataset.val, &check.val}}) {
      plan(config, pairs_in, documents, *part);
      std::vector<uint8_t> mask(1 << 16);
      std::vector<int32_t> ids(mask.size());  // read too, so that every block of a shard is verified
      for (uint64_t at = 0; at < documents->tokens(); at += mask.size()) {
        throw_if_interrupted();
        const uint64_t count = std::min<uint64_t>(mask.size(), documents->tokens() - at);
        part->supervised += documents->read_mask(at, count, mask.data());
        documents->read(at, count, ids.data());
        progress.add(count);
      }
      check.records += part->documents;
    }
    check.bad = dataset.bad;
    return check;
  }
  for (const std::string& doubt : doubts_about_files(config)) log::warn("{}", doubt);
  check.bad = BadRecords(config.on_bad_record == OnBadRecord::kFail);
  const auto train = std::make_shared<Lengths>(), val = std::make_shared<Lengths>();
  const bool tail = holds_out_tail(config);
  const auto renderer = make_renderer(options);
  const TokenizeOptions tokenizing{static_cast<int>(config.tokenizer_threads), config.tokenizer_batch_size};
  for (const bool val_records : {false, true}) {
    if (val_records && !has_val_records(config)) continue;
    SplitSink sink(*train, *val, val_records ? 1 : has_val_records(config) || tail ? 0 : config.holdout, 0);
    tokenize(*open_records(options.data, options.tasks, val_records), *renderer, tokenizing, check.bad,
             [&](const Record& record, const Rendered& rendered) {
               sink.add(record, rendered);
               check.records += record.last;
               return true;
             });
    sink.finish();
  }
  check.records += check.bad.total();
  std::shared_ptr<const Documents> learned = train, held_out = val;
  if (tail) {
    const uint64_t cut = tail_begin(config, train->tokens());
    learned = std::make_shared<TokenRange>(train, 0, cut);
    held_out = std::make_shared<TokenRange>(train, cut, train->tokens());
  }
  for (auto [documents, part] : {std::pair{learned, &check.train}, {held_out, &check.val}}) {
    plan(config, pairs_in, documents, *part);
    part->supervised = supervised_in(*documents);
  }
  return check;
}

}  // namespace tightloop
