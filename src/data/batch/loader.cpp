#include "data/batch/loader.h"

#include <algorithm>

#include "core/error.h"

namespace tightloop {

namespace {

uint64_t slot_bytes(int64_t rows, int64_t length) {
  const uint64_t cells = rows * length;
  return cells * (3 * sizeof(int32_t) + 1) + (rows + 1) * sizeof(int32_t);
}

void lay_out(Batch& batch, std::byte* memory, int64_t rows, int64_t length) {
  const int64_t cells = rows * length;
  batch.rows = rows;
  batch.length = length;
  batch.inputs = reinterpret_cast<int32_t*>(memory);
  batch.targets = batch.inputs + cells;
  batch.bounds = batch.targets + cells;
  batch.sources = batch.bounds + cells + 1;
  batch.loss_mask = reinterpret_cast<uint8_t*>(batch.sources + rows);
}

// An id that the table lacks is for check_ids() to refuse.
int64_t supervised_bytes(const Batch& batch, const std::vector<int32_t>& token_bytes) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < batch.rows * batch.length; ++i)
    if (batch.loss_mask[i] && static_cast<size_t>(batch.targets[i]) < token_bytes.size())
      bytes += token_bytes[batch.targets[i]];
  return bytes;
}

}  // namespace

LoaderOptions loader_options(const DataConfig& config) {
  LoaderOptions options;
  options.seq_len = config.seq_len;
  options.rows_kind = config.rows;
  options.keep_order = config.order != DocumentOrder::kShuffled;
  options.threads = static_cast<int>(config.num_workers);
  options.prefetch = static_cast<int>(config.prefetch_factor);
  return options;
}

namespace {

/// Before anything divides by them.
const LoaderOptions& checked(const LoaderOptions& options, const Documents* documents) {
  if (!documents) throw usage_error("a loader needs documents.");
  if (options.seq_len <= 0 || options.rows <= 0)
    throw usage_error("a loader needs rows (has {}) and a row's length (has {}) above 0.", options.rows,
                      options.seq_len);
  if (options.rank < 0 || options.rank >= options.world)
    throw usage_error("a loader's rank is below its world: {} of {} is not.", options.rank, options.world);
  if (options.first_batch < 0)
    throw usage_error("a loader starts at batch 0 or later, not {}.", options.first_batch);
  return options;
}

}  // namespace

std::shared_ptr<const RowPlan> make_row_plan(const LoaderOptions& options,
                                             std::shared_ptr<const Documents> documents) {
  return make_row_plan(options.rows_kind, std::move(documents), options.seq_len, options.pad_id,
                       options.keep_order ? std::nullopt : std::optional(options.seed));
}

Loader::Loader(std::shared_ptr<const Documents> documents, const LoaderOptions& options)
    : options_(checked(options, documents.get())),
      first_row_(options.first_row.value_or(options.first_batch * options.world * options.rows)),
      plan_(options.plan ? options.plan : make_row_plan(options, std::move(documents))) {
  if (options.rows > INT32_MAX / plan_->length()) {
    throw usage_error("{} rows of {} tokens are more than a batch can hold.", options.rows, plan_->length());
  }
  const int threads = std::max(0, options.threads);
  const int slots = std::max(2, threads * options.prefetch + 1);  // one more: the consumer holds one
  for (int i = 0; i < slots; ++i) slots_.push_back(make_slot());
  prefetcher_ =
      std::make_unique<Prefetcher>(threads, slots, options.first_batch, options.shuffle ? -1 : batches(),
                                   [this](int64_t index, int slot) { fill(index, slots_[slot]); });
}

Batch Loader::make_slot() {
  memory_.push_back(std::make_unique_for_overwrite<std::byte[]>(slot_bytes(options_.rows, plan_->length())));
  Batch slot;
  lay_out(slot, memory_.back().get(), options_.rows, plan_->length());
  return slot;
}

int64_t Loader::batches() const {
  const int64_t rows = options_.rows * options_.world;
  return static_cast<int64_t>((plan_->rows() + rows - 1) / rows);
}

SampleAt Loader::row_at(int64_t index, int64_t row) const {
  const uint64_t global = rows_before(index) + options_.rank * options_.rows + row;
  return sample_at(global, plan_->rows(), options_.seed, options_.shuffle && !options_.keep_order);
}

void Loader::fill(int64_t index, Batch& batch) const {
  batch.index = index;
  batch.supervised = batch.padding = batch.documents = 0;
  batch.bounds[0] = 0;
  for (int64_t r = 0; r < batch.rows; ++r) {
    const SampleAt row = row_at(index, r);
    const int64_t at = r * batch.length;
    const RowSpace space{batch.inputs + at, batch.targets + at, batch.loss_mask + at,
                         batch.bounds + batch.documents + 1, static_cast<int32_t>(at)};
    RowFacts facts;
    if (options_.shuffle || row.pass == 0) {
      facts = plan_->fill(row.sample, shift_of(row), space);
    } else {
      std::fill_n(space.inputs, batch.length, options_.pad_id);
      std::fill_n(space.targets, batch.length, options_.pad_id);
      std::fill_n(space.loss_mask, batch.length, uint8_t{0});
      space.bounds[0] = static_cast<int32_t>(at + batch.length);
      facts = {1, 0, batch.length, 0};
    }
    batch.sources[r] = facts.source;
    batch.supervised += facts.supervised;
    batch.padding += facts.padding;
    batch.documents += facts.documents;
  }
  batch.bytes = options_.token_bytes ? supervised_bytes(batch, *options_.token_bytes) : 0;
}

uint64_t Loader::shift_of(const SampleAt& row) const {
  return row.pass == 0 ? 0 : row.draw % plan_->length();
}

const Batch& Loader::again(int64_t index) {
  if (!again_) again_ = make_slot();
  fill(index, *again_);
  return *again_;
}

std::vector<std::string> Loader::origins(int64_t index) const {
  std::vector<std::string> texts;
  for (int64_t r = 0; r < options_.rows; ++r) {
    const SampleAt row = row_at(index, r);
    const bool filled_up = !options_.shuffle && row.pass > 0;
    texts.push_back(filled_up ? "padding" : plan_->origin(row.sample, shift_of(row)));
  }
  return texts;
}

const Batch* Loader::try_next() {
  const int slot = prefetcher_->next();
  return slot < 0 ? nullptr : &slots_[slot];
}

const Batch& Loader::next() {
  const Batch* batch = try_next();
  if (!batch) throw data_error("the data has ended: {} batches were all of it.", batches());
  return *batch;
}

}  // namespace tightloop
