#include "train/settings/depth_dial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/counted.h"
#include "core/error.h"
#include "core/terminal/terminal.h"
#include "model/families/nanochat/nanochat.h"
#include "model/family.h"
#include "model/model_size.h"
#include "tokenizer/tokenizer.h"

namespace tightloop {

namespace {

constexpr int64_t kReferenceDepth = 12, kWidthPerLayer = 64, kHeadSize = 128, kVocabulary = 32768,
                  kRow = 2048, kWarmupSteps = 40;
constexpr double kDecayFraction = 0.65, kMinLr = 0.05;

/// Sets a field unless the recipe or the command line has.
class Unless {
 public:
  explicit Unless(const Config& config) : config_(config) {}
  template <class T, class Value>
  void set(std::string_view key, T& field, Value value) const {
    if (!config_.given(std::string(key))) field = static_cast<T>(value);
  }

 private:
  const Config& config_;
};

/// A multiple of the head's size.
int64_t width_of(int64_t depth, int64_t head_size) {
  return (depth * kWidthPerLayer + head_size - 1) / head_size * head_size;
}

void set_sizes(ModelConfig& model, const Config& config) {
  const Unless unless(config);
  unless.set("model.head_size", model.head_size, kHeadSize);
  unless.set("model.layers", model.layers, model.depth);
  unless.set("model.width", model.width, width_of(model.depth, model.head_size));
  unless.set("model.heads", model.heads, model.width / model.head_size);
  if (model.leaves_sizes_open()) model.preset.clear();
  for (const char* key : {"model.head_size", "model.layers", "model.width", "model.heads"})
    if (config.given(key)) model.depth = 0;  // or it would set them again
}

ModelConfig reference_of(ModelConfig model) {
  model.layers = kReferenceDepth;
  model.width = width_of(kReferenceDepth, model.head_size);
  model.heads = model.width / model.head_size, model.kv_heads = model.ffn = 0;
  return model;
}

/// Parameters in the matrices of the blocks and in the head. The gate of the smear is in neither.
int64_t scaling_parameters(ModelConfig model, int64_t vocabulary) {
  model.depth = 0;  // the sizes are there
  model.resolve(vocabulary, kRow);
  return model_size(model).matmul - kSmearChannels;
}

}  // namespace

DepthRules depth_rules(int64_t parameters, int64_t reference, double data_ratio, int64_t step_tokens) {
  DepthRules rules;
  rules.tokens = static_cast<int64_t>(data_ratio * static_cast<double>(parameters));
  if (rules.tokens <= 0)
    throw usage_error(
        "train.data_ratio {} gives no tokens to train on: it is tokens by parameter, such as 12.",
        data_ratio);
  const double share = static_cast<double>(rules.tokens) / (data_ratio * static_cast<double>(reference));
  const double fitting =
      static_cast<double>(DepthRules::kStepTokens) * std::pow(share, DepthRules::kBatchPower);
  rules.step_tokens = step_tokens > 0 ? step_tokens : int64_t{1} << std::llrint(std::log2(fitting));
  rules.lr_scale = std::sqrt(static_cast<double>(rules.step_tokens) / DepthRules::kStepTokens);
  rules.decay_scale = rules.lr_scale / share;
  rules.steps = rules.tokens / rules.step_tokens;
  return rules;
}

bool turns_depth_dial(const Recipe& recipe, const Config& config) {
  return config.given("model.depth") && recipe.model.depth > 0 && recipe.train.init_from.empty() &&
         family_of(recipe.model).has.depth;
}

std::string resolve_depth(Recipe& recipe, const Config& config, int64_t world) {
  const Unless unless(config);
  DataConfig& data = recipe.data;
  ModelConfig& model = recipe.model;
  TrainConfig& train = recipe.train;
  const int64_t depth = model.depth;
  unless.set("data.seq_len", data.seq_len, kRow);
  if (recipe.tokenizer.path.empty())
    unless.set("tokenizer.vocab_size", recipe.tokenizer.vocab_size, kVocabulary);
  set_sizes(model, config);
  unless.set("train.optimizer", train.optimizer, OptimizerKind::kMuon);
  unless.set("train.schedule", train.schedule, ScheduleKind::kWsd);
  unless.set("train.decay_fraction", train.decay_fraction, kDecayFraction);
  unless.set("train.min_lr", train.min_lr, kMinLr);
  unless.set("train.clip", train.clip, 0);
  if (!config.given("train.warmup_ratio")) unless.set("train.warmup_steps", train.warmup_steps, kWarmupSteps);
  unless.set("train.data_ratio", train.data_ratio, DepthRules::kDataRatio);

  const auto& path = recipe.tokenizer.path;
  const int64_t vocabulary = path.empty() ? recipe.tokenizer.vocab_size : load_tokenizer(path)->vocab_size();
  const int64_t parameters = scaling_parameters(model, vocabulary);
  const bool own_batch = config.given("train.accumulate") && !config.given("train.step_tokens");
  const DepthRules rules = depth_rules(
      parameters, scaling_parameters(reference_of(model), vocabulary), train.data_ratio,
      own_batch ? train.micro_batch * train.accumulate * data.seq_len * world : train.step_tokens);
  if (!own_batch) unless.set("train.step_tokens", train.step_tokens, rules.step_tokens);
  for (const auto& [key, lr] : {std::pair{"train.matrix_lr", &train.matrix_lr},
                                {"train.embedding_lr", &train.embedding_lr},
                                {"train.unembedding_lr", &train.unembedding_lr},
                                {"train.scalar_lr", &train.scalar_lr}})
    unless.set(key, *lr, *lr * rules.lr_scale);
  unless.set("train.muon_weight_decay", train.muon_weight_decay, train.muon_weight_decay * rules.decay_scale);
  if (!config.given("train.epochs"))
    unless.set("train.steps", train.steps, std::max<int64_t>(1, rules.steps));
  return fmt::format(
      "model.depth {}: {} of {}, {} of {}, {} parameters in matrices and head. nanochat's rules: {} tokens "
      "for each "
      "of these, {} in all, {} a step, rates x {:.4g}, Muon's weight decay x {:.4g}. With what the recipe "
      "and the "
      "command line give: {}, rates {:.4g} (matrices), {:.4g} (embeddings), {:.4g} (head), {:.4g} (scalars), "
      "weight "
      "decay {:.4g}.",
      depth, counted(model.layers, "layer"), model.width, counted(model.heads, "head"), model.head_size,
      human_count(static_cast<double>(parameters)), train.data_ratio,
      human_count(static_cast<double>(rules.tokens)), rules.step_tokens, rules.lr_scale, rules.decay_scale,
      train.epochs > 0 ? counted(train.epochs, "epoch") : counted(train.steps, "step"), train.matrix_lr,
      train.embedding_lr, train.unembedding_lr, train.scalar_lr, train.muon_weight_decay);
}

}  // namespace tightloop
