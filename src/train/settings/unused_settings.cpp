#include "train/settings/unused_settings.h"

#include <fmt/format.h>

#include <set>
#include <tuple>

#include "core/error.h"
#include "model/family.h"

namespace tightloop {

namespace {

/// Adds the fields of a section that differ from their defaults.
template <class Section>
void add_changed(std::set<std::string>& changed, const std::string& name, Section section) {
  Section untouched;
  Fields now, before;
  section.describe(now);
  untouched.describe(before);
  for (size_t i = 0; i < now.all().size(); ++i)
    if (now.all()[i].text() != before.all()[i].text()) changed.insert(name + "." + now.all()[i].name());
}

struct Rule {
  bool applies;
  std::vector<std::string> settings;
  std::string why;
};

}  // namespace

// Settings that ModelConfig::resolve() fills in are left out: a parent's model (train.init_from) has them
// all.
std::vector<std::string> unused_settings(const Recipe& recipe) {
  const auto& [model, train, lora] = std::tie(recipe.model, recipe.train, recipe.lora);
  const bool pairs = model.translates(), muon = train.optimizer == OptimizerKind::kMuon;
  if (pairs && lora.on())
    throw usage_error("lora.rank is {}, and adapters are for language models: leave it out for {}.",
                      lora.rank, model.family);
  if (pairs && train.z_loss != 0)
    throw usage_error("train.z_loss is {}, and the loss of {} has no such part: leave it out.", train.z_loss,
                      model.family);
  if (!recipe.data.reads_files() && recipe.data.mixture.empty() &&
      !(recipe.data.train.empty() && recipe.data.val.empty()))
    throw usage_error(
        "data.{} names files, and data.source is '{}', which is generated and reads none. Set data.source "
        "to "
        "what the files hold (auto, text, jsonl, parquet, pairs or shards), or leave the files out.",
        recipe.data.train.empty() ? "val" : "train", name_of(recipe.data.source));
  if (train.init_optimizer && train.init_from.empty())
    throw usage_error("train.init_optimizer takes over the state of a run, and train.init_from names none.");
  if (train.init_optimizer && lora.on())
    throw usage_error(
        "train.init_optimizer is for the weights that the parent trained, and adapters (lora.rank) are new: "
        "leave it out.");
  const auto& schedule = train.schedule;
  const bool wsd = schedule == ScheduleKind::kWsd,
             ends = is_one_of(schedule, {ScheduleKind::kCosine, ScheduleKind::kLinear, ScheduleKind::kWsd});
  const int64_t step_tokens = train.micro_batch * recipe.data.seq_len * recipe.world;
  const bool alone = recipe.world == 1,
             accumulates = train.accumulate > 1 || (!pairs && train.step_tokens > step_tokens);
  const std::vector<Rule> rules{
      {alone,
       {"dist.shard", "dist.reduce", "dist.overlap", "dist.bucket_mb", "dist.backend"},
       "is for several processes, and this is one (docs/several_gpus.md)"},
      {!alone && accumulates,
       {"dist.reduce"},
       "is for steps of one micro-batch; the sums of several (train.accumulate) are fp32, and travel so"},
      {train.precision != Precision::kFp8, {"train.fp8_head"}, "is for train.precision fp8"},
      {!pairs,
       {"model.share_embeddings", "model.norm_place", "model.positions", "model.activation",
        "train.smoothing", "train.eval_translations", "train.bleu_tokenize", "data.batch_tokens",
        "data.bucket"},
       "is for seq2seq"},
      {pairs, {"train.micro_batch"}, "is for rows; data.batch_tokens sizes the batches of pairs"},
      {pairs,
       {"data.rows", "data.order", "data.loss_after", "data.begin_token", "data.end_token"},
       "is for rows, not for pairs"},
      {pairs, {"train.step_tokens"}, "is for rows; data.batch_tokens sizes the batches of pairs"},
      {!family_of(model).has.depth, {"train.data_ratio"}, "is for nanochat, with model.depth"},
      {pairs, {"train.eval_batches"}, "is for rows; seq2seq evaluates on all held-out pairs"},
      {pairs && model.leaves_checkpointing_open(),
       {"model.gradient_checkpointing"},
       "is not for seq2seq, which keeps all activations"},
      {family_of(model).has.own_init, {"model.init_std"}, "is not for " + model.family},
      {!family_of(model).window,
       {"model.window_pattern"},
       "is for " + families_with([](const Family& family) { return family.window != nullptr; })},
      {!model.has_experts(),
       {"model.experts", "model.experts_per_token", "model.norm_topk", "model.balance_coef", "model.balance"},
       "is for " + families_with([](const Family& family) { return family.has.experts; })},
      {model.rope_scaling == RopeScaling::kNone,
       {"model.rope_factor", "model.rope_low_freq", "model.rope_high_freq", "model.rope_original_context"},
       "is for model.rope_scaling llama3"},
      {!muon,
       {"train.matrix_lr", "train.embedding_lr", "train.unembedding_lr", "train.scalar_lr", "train.lr_scale",
        "train.muon_weight_decay", "train.muon_decay_schedule", "train.muon_beta2", "train.muon_momentum",
        "train.muon_momentum_start", "train.muon_momentum_steps", "train.muon_momentum_end"},
       "is for train.optimizer muon"},
      {muon,
       {"train.lr", "train.weight_decay", "train.decay_vectors", "train.beta1", "train.beta2", "train.eps"},
       "is for train.optimizer adamw"},
      {muon && !wsd, {"train.muon_momentum_end"}, "is for train.schedule wsd"},
      {!wsd, {"train.decay_fraction"}, "is for train.schedule wsd"},
      {!ends, {"train.min_lr"}, "is for train.schedule cosine, linear and wsd"},
      {schedule == ScheduleKind::kMinimind,
       {"train.warmup_steps", "train.warmup_ratio"},
       "is not for train.schedule minimind"},
      {train.epochs > 0 && train.steps > 0, {"train.steps"}, "is for train.epochs 0"},
      {train.warmup_steps > 0, {"train.warmup_ratio"}, "is for train.warmup_steps 0"},
      {train.precision != Precision::kFp16,
       {"train.loss_scale", "train.loss_scale_growth_steps"},
       "is for train.precision fp16"},
      {train.device == "cpu",
       {"train.autotune", "train.graph", "train.copy_stream", "train.copy_ahead", "train.pools",
        "train.empty_cache_steps", "train.debug_syncs"},
       "is for GPUs"},
      {train.eval_steps == 0, {"train.patience"}, "needs train.eval_steps"},
      {!lora.on(), {"lora.alpha", "lora.layers"}, "needs lora.rank"},
      {recipe.eval.suite.empty(), {"eval.suite_steps"}, "needs eval.suite"},
  };
  std::set<std::string> changed;
  add_changed(changed, "data", recipe.data);
  add_changed(changed, "model", model);
  add_changed(changed, "train", train);
  add_changed(changed, "lora", lora);
  add_changed(changed, "eval", recipe.eval);
  add_changed(changed, "dist", recipe.dist);
  std::vector<std::string> sentences;
  for (const Rule& rule : rules)
    for (const auto& setting : rule.settings)
      if (rule.applies && changed.contains(setting))
        sentences.push_back(fmt::format("{} has no effect here: it {}.", setting, rule.why));
  return sentences;
}

}  // namespace tightloop
