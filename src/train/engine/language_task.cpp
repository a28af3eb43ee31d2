#include "train/engine/language_task.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "data/render/chat.h"
#include "data/store/random_documents.h"
#include "model/model_size.h"
#include "train/optim/optimizer.h"
#include "train/run/checkpoint.h"
#include "train/run/resume_check.h"
#include "train/run/run_tokenizer.h"
#include "train/run/saved_model.h"
#include "train/settings/auto_sizes.h"
#include "train/settings/loading.h"
#include "train/settings/memory_plan.h"

namespace tightloop {

namespace {

/// Keeps for checkpoints, as `end_of_turn`, the token that ends an assistant's turn, where the data teaches
/// it: so a model of conversations is known as one.
void keep_end_of_turn(const Documents& documents, const ChatConfig& chat, const Tokenizer& tokenizer,
                      nlohmann::json& metadata) {
  constexpr uint64_t kTried = 256, kTokens = 1 << 16;  // spread over all
  int32_t end = -1;
  try {
    end = ChatTemplate(chat, tokenizer).end_of_turn();
  } catch (const Error&) {
    return;  // a tokenizer without the template's tokens
  }
  std::vector<int32_t> ids;
  std::vector<uint8_t> mask;
  const uint64_t size = documents.size(), tried = std::min(size, kTried);
  for (uint64_t i = 0; i < tried && end >= 0; ++i) {
    const uint64_t document = size * i / tried, length = std::min(documents.length(document), kTokens);
    ids.resize(length), mask.resize(length);
    documents.read(documents.begin(document), length, ids.data());
    documents.read_mask(documents.begin(document), length, mask.data());
    for (uint64_t j = 0; j < length; ++j)
      if (ids[j] == end && mask[j]) {
        metadata["end_of_turn"] = end;
        return;
      }
  }
}

/// Whether documents that are cut into several rows have parts that are read and not learned, such as
/// questions. Of very many documents the first that are so long tell.
bool cuts_questions(const Documents& documents, int64_t length) {
  constexpr int kEnough = 1000;
  std::vector<uint8_t> mask;
  int seen = 0;
  for (uint64_t i = 0; i < documents.size() && seen < kEnough; ++i) {
    const uint64_t tokens = documents.length(i);
    if (static_cast<int64_t>(tokens) - 1 <= length) continue;
    ++seen;
    mask.resize(tokens);
    if (documents.read_mask(documents.begin(i), tokens, mask.data()) + 1 < tokens) return true;
  }
  return false;
}

}  // namespace

LanguageTask::LanguageTask(Recipe& recipe, const RunFolder& run, nlohmann::json& metadata,
                           const Checkpoint* from)
    : recipe_(recipe) {
  if (recipe.data.source == DataSource::kRandom) {
    load_random(recipe);
  } else {
    tokenizer_ = prepare_tokenizer(recipe, run);
    dataset_ = load_dataset(recipe.data, recipe.tasks, *tokenizer_, recipe.chat, nullptr, run.index());
    if (dataset_.bad.total() > 0) log::warn("{}", dataset_.bad.report());
    const uint64_t held_out = recipe.data.val.empty() ? dataset_.val->tokens() : 0;
    if (const auto sizes = corrected_sizes(recipe, dataset_.train->tokens() + held_out); !sizes.empty())
      log::info("{}", sizes);
    keep_counts(dataset_, metadata);
    keep_end_of_turn(*dataset_.train, recipe.chat, *tokenizer_, metadata);
    recipe.model.resolve(tokenizer_->vocab_size(), recipe.data.seq_len);
  }
  const Device& trains_on = device(recipe.train.device);
  const ModelConfig model = resolved_model(recipe, trains_on);
  refuse_too_large(recipe, model, trains_on);
  model_ = make_model(model, recipe.train.seed);
  load_start(metadata, from);
  if (recipe.lora.on())
    adapters_ = std::make_unique<Adapters>(model_->parameters(), recipe.lora, recipe.train.seed);
}

void LanguageTask::load_random(Recipe& recipe) {
  constexpr uint64_t kDocuments = 1 << 20;
  if (recipe.model.vocab_size == 0)
    throw usage_error("random ids need a vocabulary: set model.vocab_size or a model.preset that has one.");
  recipe.model.resolve(0, recipe.data.seq_len);
  dataset_.train = std::make_shared<RandomDocuments>(recipe.model.vocab_size, kDocuments, recipe.train.seed);
  dataset_.val = std::make_shared<RandomDocuments>(recipe.model.vocab_size, 0, 0);
  dataset_.sources = {"random"};
}

LoaderOptions LanguageTask::loading() const {
  return tokenizer_ ? loading_of(recipe_, *tokenizer_) : loading_of(recipe_, /*pad_id=*/0);
}

LoaderOptions LanguageTask::held_out_loading() const {
  LoaderOptions options = loading();
  options.shuffle = false;
  return options;
}

void LanguageTask::load_start(nlohmann::json& metadata, const Checkpoint* from) {
  const auto& train = recipe_.train;
  if (!train.stage.empty()) metadata["stage"] = train.stage;
  metadata["gradient_checkpointing"] = config().gradient_checkpointing;
  if (recipe_.lora.on()) metadata["lora"] = {{"rank", recipe_.lora.rank}, {"alpha", recipe_.lora.alpha}};
  if (from) {
    // A run that resumes needs its parent no more: what its adapters stand on is in its own checkpoints.
    if (!recipe_.lora.on()) return;
    Safetensors own = from->weights;
    drop_adapters(own);
    load_weights(model_->parameters(), own, "model.safetensors");
  } else if (!train.init_from.empty()) {
    const SavedModel parent(train.init_from);
    parent.load_weights(*model_);
    metadata["parent"] = {{"path", train.init_from}, {"step", parent.step()}};
    if (parent.metadata().contains("stage")) metadata["parent"]["stage"] = parent.metadata()["stage"];
    inherit_metadata(parent.metadata(), metadata);
    log::info("Starting from {}{}.", train.init_from,
              parent.step() > 0 ? fmt::format(" after its step {}", parent.step()) : "");
  }
}

void LanguageTask::move_to(at::Device device, at::ScalarType dtype) {
  if (adapters_) model_->parameters().to(device, dtype);
}

std::string LanguageTask::description() const {
  return fmt::format("{} parameters{}; vocabulary {}; {} training tokens, {} held out",
                     human_count(static_cast<double>(model_->parameters().count())),
                     adapters_
                         ? fmt::format(", {} of adapters to train",
                                       human_count(static_cast<double>(adapters_->parameters().count())))
                         : "",
                     tokenizer_ ? tokenizer_->vocab_size() : config().vocab_size,
                     human_count(static_cast<double>(dataset_.train->tokens())),
                     human_count(static_cast<double>(dataset_.val->tokens())));
}

int64_t LanguageTask::positions() const {
  const int64_t length = recipe_.data.rows == RowKind::kPad ? recipe_.data.seq_len - 1 : recipe_.data.seq_len;
  return recipe_.train.micro_batch * length;
}

uint64_t LanguageTask::epoch_samples() {
  if (!plan_) plan_ = make_row_plan(loading(), dataset_.train);
  return plan_->rows();
}

void LanguageTask::open(int64_t first_micro_batch, int64_t consumed, int rank, int world) {
  LoaderOptions options = loading();
  options.first_batch = first_micro_batch, options.first_row = consumed;
  options.rank = rank, options.world = world;
  // What is added to the cross entropy is no information: such a loss is not told in bits.
  if (recipe_.train.label_smoothing != 0 || recipe_.train.z_loss != 0) options.token_bytes.reset();
  options.plan = plan_;
  loader_ = std::make_unique<Loader>(dataset_.train, options);
  const RowPlan& plan = loader_->plan();
  if (plan.cut_tokens() > 0 && recipe_.data.rows == RowKind::kFitCrop)
    log::info("data.rows fit_crop cuts documents off to fill rows: {:.0f} % of all tokens are in none.",
              100 * static_cast<double>(plan.cut_tokens()) / static_cast<double>(dataset_.train->tokens()));
  else if (plan.cut_tokens() > 0)
    log::warn(
        "{} of {} documents are longer than a row of data.seq_len = {} tokens: data.rows {} cuts off {} of "
        "{} tokens.",
        plan.long_documents(), dataset_.train->size(), recipe_.data.seq_len, name_of(recipe_.data.rows),
        human_count(static_cast<double>(plan.cut_tokens())),
        human_count(static_cast<double>(dataset_.train->tokens())));
  else if (recipe_.data.rows == RowKind::kPack && cuts_questions(*dataset_.train, recipe_.data.seq_len))
    log::warn(
        "{} of {} documents are longer than a row of data.seq_len = {} tokens: data.rows pack cuts them into "
        "several rows, so that answers are learned without the questions that stand in the row before.",
        plan.long_documents(), dataset_.train->size(), recipe_.data.seq_len);
}

Staged LanguageTask::next(bool pin) {
  const Batch& batch = loader_->next();
  check_ids(batch, config().vocab_size, [&](int64_t row) {
    return fmt::format("{} of source '{}'", loader_->origins(batch.index).at(row),
                       dataset_.sources.at(batch.sources[row]));
  });
  return staged(batch, pin);
}

Staged LanguageTask::again(int64_t micro_batch) { return staged(loader_->again(micro_batch), /*pin=*/false); }

std::vector<std::string> LanguageTask::origins(int64_t micro_batch) const {
  return loader_->origins(micro_batch);
}

Staged LanguageTask::staged(const Batch& batch, bool pin) const {
  Staged staged = stage(batch, pin);
  staged.index = batch.index;
  staged.epoch = static_cast<double>(loader_->rows_before(batch.index + 1)) /
                 static_cast<double>(loader_->plan().rows());
  return staged;
}

BatchLoss LanguageTask::loss(const std::vector<at::Tensor>& parts, const at::Tensor& scale, bool metrics) {
  const auto& train = recipe_.train;
  if (adapters_) adapters_->refresh();
  return loss_of(*model_, device_batch(parts),
                 {.training = true,
                  .label_smoothing = train.label_smoothing,
                  .z_loss = train.z_loss,
                  .fused_head = train.fused_head,
                  .fp8_head = train.fp8_head,
                  .scale = scale,
                  .correct = metrics});
}

std::string LanguageTask::why_no_evaluation() const {
  if (dataset_.val->size() == 0) return kNothingHeldOut;
  LoaderOptions options = held_out_loading();
  options.threads = 0;
  try {
    Loader loader(dataset_.val, options);
    const int64_t limit = recipe_.train.eval_batches;
    for (int64_t taken = 0; limit == 0 || taken < limit; ++taken) {
      const Batch* batch = loader.try_next();
      if (!batch) break;
      if (batch->supervised > 0) return {};
    }
  } catch (const Error& error) {
    return fmt::format("{} held-out documents: {}", dataset_.val->size(), error.what());
  }
  return fmt::format(
      "none of the {} tokens of {} held-out documents is to be learned: the loss mask is all zero. See "
      "data.loss_after and the chat template.",
      dataset_.val->tokens(), dataset_.val->size());
}

HeldOutSums LanguageTask::evaluate(int rank, int world) {
  refresh_weights();
  LoaderOptions options = held_out_loading();
  options.rank = rank, options.world = world;
  Loader loader(dataset_.val, options);
  return held_out_sums(*model_, loader, recipe_.train.eval_batches);
}

void LanguageTask::refresh_weights() {
  c10::NoGradGuard no_grad;
  if (adapters_) adapters_->refresh();
}

double LanguageTask::flops_per_token() const {
  return tightloop::flops_per_token(config(), recipe_.data.seq_len);
}

}  // namespace tightloop
