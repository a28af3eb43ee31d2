#include "train/engine/translation_task.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "core/error.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "data/store/random_documents.h"
#include "model/model_size.h"
#include "train/engine/pair_loss.h"
#include "train/run/checkpoint.h"
#include "train/run/resume_check.h"
#include "train/run/saved_model.h"
#include "train/settings/loading.h"

namespace tightloop {

TranslationTask::TranslationTask(Recipe& recipe, const RunFolder& run, nlohmann::json& metadata,
                                 const Checkpoint* from)
    : recipe_(recipe) {
  if (recipe.data.source == DataSource::kRandom) {
    load_random(recipe);
  } else {
    tokenizers_ = prepare_pair_tokenizers(recipe, run);
    dataset_ = load_dataset(recipe.data, recipe.tasks, *tokenizers_.source, recipe.chat,
                            &tokenizers_.target(), run.index());
    if (dataset_.bad.total() > 0) log::warn("{}", dataset_.bad.report());
    keep_counts(dataset_, metadata);
    recipe.model.resolve_pair(tokenizers_.source->vocab_size(), tokenizers_.target().vocab_size(),
                              recipe.data.seq_len);
  }
  model_ = std::make_unique<Seq2Seq>(recipe.model, recipe.train.seed);
  const auto& train = recipe.train;
  if (!train.stage.empty()) metadata["stage"] = train.stage;
  if (train.init_from.empty() || from) return;
  const SavedModel parent(train.init_from);
  parent.load_weights(model_->parameters());
  metadata["parent"] = {{"path", train.init_from}, {"step", parent.step()}};
  log::info("Starting from {} after its step {}.", train.init_from, parent.step());
}

void TranslationTask::load_random(Recipe& recipe) {
  constexpr uint64_t kPairs = 1 << 16;
  if (recipe.model.vocab_size == 0) throw usage_error("random ids need a vocabulary: set model.vocab_size.");
  if (recipe.model.source_vocab_size == 0) recipe.model.source_vocab_size = recipe.model.vocab_size;
  recipe.model.resolve(0, recipe.data.seq_len);
  const auto length = static_cast<uint64_t>(recipe.data.seq_len);
  dataset_.train = std::make_shared<RandomDocuments>(recipe.model.vocab_size, 2 * kPairs, recipe.train.seed,
                                                     std::vector<uint64_t>{length, length + 1});
  dataset_.val = std::make_shared<RandomDocuments>(recipe.model.vocab_size, 0, 0);
  dataset_.sources = {"random"};
}

PairOptions TranslationTask::loading() const { return pair_loading_of(recipe_); }

PairOptions TranslationTask::held_out_loading() const {
  PairOptions options = loading();
  options.shuffle = false;
  return options;
}

std::string TranslationTask::description() const {
  const auto& plan = loader_->plan();
  return fmt::format(
      "{} parameters; vocabularies {} and {}; {} training pairs, {} held out, {} longer than {} tokens left "
      "out, {:.1f} % padding",
      human_count(static_cast<double>(model_->parameters().count())), config().source_vocab_size,
      config().vocab_size, dataset_.train->size() / 2, dataset_.val->size() / 2, plan.long_pairs(),
      recipe_.data.seq_len, 100 * plan.padding_share());
}

uint64_t TranslationTask::epoch_samples() { return PairPlan(*dataset_.train, loading()).batches(); }

void TranslationTask::open(int64_t first_micro_batch, int64_t consumed, int rank, int world) {
  PairOptions options = loading();
  options.first_batch = first_micro_batch, options.first_global = consumed;
  options.rank = rank, options.world = world;
  loader_ = std::make_unique<PairLoader>(dataset_.train, options);
}

Staged TranslationTask::next(bool pin) {
  const PairBatch& batch = loader_->next();
  check_ids(batch, config().source_vocab_size, config().vocab_size,
            [&](int64_t row) { return loader_->origins(batch.index).at(row); });
  return staged(batch, pin);
}

Staged TranslationTask::again(int64_t micro_batch) {
  return staged(loader_->again(micro_batch), /*pin=*/false);
}

std::vector<std::string> TranslationTask::origins(int64_t micro_batch) const {
  return loader_->origins(micro_batch);
}

Staged TranslationTask::staged(const PairBatch& batch, bool pin) const {
  // As many rows as a batch of these lengths can have, so that there are few shapes.
  const int64_t rows =
      std::max(batch.rows, recipe_.data.batch_tokens / std::max(batch.source_length, batch.target_length));
  Staged staged = stage(batch, rows, pin);
  staged.index = batch.index;
  staged.epoch = static_cast<double>(loader_->batches_before(batch.index + 1)) /
                 static_cast<double>(loader_->plan().batches());
  return staged;
}

BatchLoss TranslationTask::loss(const std::vector<at::Tensor>& parts, const at::Tensor& scale, bool metrics) {
  const auto& train = recipe_.train;
  const DevicePairs batch = device_pairs(parts);
  BatchLoss loss{pair_loss(*model_, batch,
                           {.training = true,
                            .random = batch.random,
                            .label_smoothing = train.label_smoothing,
                            .smoothing = train.smoothing,
                            .fused_head = train.fused_head,
                            .fp8_head = train.fp8_head,
                            .scale = scale,
                            .correct = metrics})};
  if (metrics) {
    loss.counted = batch.targets_BT.flatten() != ops::kIgnoreIndex;
    loss.sources_B = at::zeros_like(batch.source_lengths_B);
  }
  return loss;
}

std::string TranslationTask::why_no_evaluation() const {
  if (dataset_.val->size() == 0) return kNothingHeldOut;
  try {
    PairPlan(*dataset_.val, held_out_loading());
    return {};
  } catch (const Error& error) {
    return fmt::format("{} held-out pairs: {}", dataset_.val->size() / 2, error.what());
  }
}

HeldOutSums TranslationTask::evaluate(int rank, int world) {
  PairOptions options = held_out_loading();
  options.rank = rank, options.world = world;
  PairLoader loader(dataset_.val, options);
  return held_out_sums(*model_, loader);
}

std::optional<HeldOutPairs> TranslationTask::held_out_pairs() {
  if (!tokenizers_.source) return {};  // random ids are no text
  return HeldOutPairs{*model_, *dataset_.val, tokenizers_.target(), tokenizers_};
}

double TranslationTask::flops_per_token() const {
  return tightloop::flops_per_token(config(), recipe_.data.seq_len);
}

}  // namespace tightloop
