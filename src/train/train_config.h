#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/choice.h"
#include "score/bleu_words.h"

namespace tightloop {

class Fields;

/// The compute dtype.
enum class Precision { kAuto, kFp32, kTf32, kBf16, kFp16, kFp8 };
template <>
inline constexpr auto kChoices<Precision> = std::to_array<Choice<Precision>>({
    {Precision::kAuto, "auto", "bf16 where the device is fast at it, else fp32"},
    {Precision::kFp32, "fp32"},
    {Precision::kTf32, "tf32", "fp32 with TF32 matrix products on a GPU"},
    {Precision::kBf16, "bf16"},
    {Precision::kFp16, "fp16", "with dynamic loss scaling"},
    {Precision::kFp8, "fp8", "bf16 with the blocks' matrix products in fp8, on GPUs that have it"},
});

/// What the loss is divided by.
enum class LossNorm { kGlobal, kMicro };
template <>
inline constexpr auto kChoices<LossNorm> = std::to_array<Choice<LossNorm>>({
    {LossNorm::kGlobal, "global", "the step's loss by its number of supervised tokens"},
    {LossNorm::kMicro, "micro", "each micro-batch's loss by its own, then by train.accumulate"},
});

/// On, off, or as the program finds best.
enum class AutoSwitch { kAuto, kOn, kOff };
template <>
inline constexpr auto kChoices<AutoSwitch> = std::to_array<Choice<AutoSwitch>>({
    {AutoSwitch::kAuto, "auto"},
    {AutoSwitch::kOn, "on"},
    {AutoSwitch::kOff, "off"},
});

/// Where the weight goes that label smoothing takes from the target.
enum class Smoothing { kUniform, kKullbackLeibler };
template <>
inline constexpr auto kChoices<Smoothing> = std::to_array<Choice<Smoothing>>({
    {Smoothing::kUniform, "uniform", "evenly to the whole vocabulary, the target too"},
    {Smoothing::kKullbackLeibler, "kl",
     "evenly to all but target and padding, with the KL divergence as loss"},
});

enum class OptimizerKind { kAdamw, kMuon };
template <>
inline constexpr auto kChoices<OptimizerKind> = std::to_array<Choice<OptimizerKind>>({
    {OptimizerKind::kAdamw, "adamw"},
    {OptimizerKind::kMuon, "muon",
     "Muon for the matrices of the layers and AdamW for the rest, each with its own learning rate"},
});

/// Of the learning rate.
enum class ScheduleKind { kCosine, kLinear, kConstant, kWsd, kInverseSqrt, kNoam, kMinimind };
template <>
inline constexpr auto kChoices<ScheduleKind> = std::to_array<Choice<ScheduleKind>>({
    {ScheduleKind::kCosine, "cosine"},
    {ScheduleKind::kLinear, "linear"},
    {ScheduleKind::kConstant, "constant"},
    {ScheduleKind::kWsd, "wsd", "constant, then down in the last train.decay_fraction"},
    {ScheduleKind::kInverseSqrt, "inverse_sqrt"},
    {ScheduleKind::kNoam, "noam", "of the whole run, warm-up included"},
    {ScheduleKind::kMinimind, "minimind", "of the whole run"},
});

/// Of the weight decay of Muon.
enum class DecaySchedule { kCosine, kConstant };
template <>
inline constexpr auto kChoices<DecaySchedule> = std::to_array<Choice<DecaySchedule>>({
    {DecaySchedule::kCosine, "cosine", "to 0"},
    {DecaySchedule::kConstant, "constant"},
});

/// What is done about a loss far above those before it.
enum class OnSpike { kWarn, kSkip, kRollback, kOff };
template <>
inline constexpr auto kChoices<OnSpike> = std::to_array<Choice<OnSpike>>({
    {OnSpike::kWarn, "warn", "say so, with the rows it came from"},
    {OnSpike::kSkip, "skip", "leave the update of the step out"},
    {OnSpike::kRollback, "rollback",
     "return to the last checkpoint and pass over the batches up to the spike"},
    {OnSpike::kOff, "off"},
});

/// What makes one evaluation better than another.
enum class BestBy { kLoss, kAccuracy, kBleu, kChrf };
template <>
inline constexpr auto kChoices<BestBy> = std::to_array<Choice<BestBy>>({
    {BestBy::kLoss, "loss", "the lowest held-out loss"},
    {BestBy::kAccuracy, "accuracy", "the largest fraction of held-out tokens that are predicted right"},
    {BestBy::kBleu, "bleu", "seq2seq: the highest BLEU of train.eval_translations held-out pairs"},
    {BestBy::kChrf, "chrf", "seq2seq: the highest chrF of the same"},
});

/// Section "train": the loop.
struct TrainConfig {
  std::string device = "auto";
  Precision precision = Precision::kAuto;
  int64_t steps = 1000, micro_batch = 32, accumulate = 1, step_tokens = 0, seed = 1337;
  double epochs = 0, data_ratio = 0;
  // Loss
  LossNorm loss_norm = LossNorm::kGlobal;
  AutoSwitch fused_head = AutoSwitch::kAuto;
  bool fp8_head = false;
  double label_smoothing = 0, z_loss = 0;
  Smoothing smoothing = Smoothing::kUniform;
  // Optimizer
  OptimizerKind optimizer = OptimizerKind::kAdamw;
  double lr = 3e-4, weight_decay = 0.1, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, clip = 1.0;
  bool decay_vectors = false;
  double matrix_lr = 0.02, embedding_lr = 0.3, unembedding_lr = 0.008, scalar_lr = 0.5, lr_scale = 1;
  double muon_weight_decay = 0.28, muon_beta2 = 0.9;
  double muon_momentum = 0.97, muon_momentum_start = 0.85, muon_momentum_end = 0.9;
  int64_t muon_momentum_steps = 400;
  DecaySchedule muon_decay_schedule = DecaySchedule::kCosine;
  // Schedule
  ScheduleKind schedule = ScheduleKind::kCosine;
  int64_t warmup_steps = 0;
  double warmup_ratio = 0, min_lr = 0.1, decay_fraction = 0.2;
  // Step engine
  AutoSwitch graph = AutoSwitch::kAuto;
  int64_t loss_extract_interval = 10, empty_cache_steps = 0, loss_scale_growth_steps = 2000;
  double loss_scale = 65536, memory_limit = 0;
  bool autotune = true, deterministic = false, debug_syncs = false, set_to_none = true, copy_stream = true,
       copy_ahead = true, time_parts = true, pools = true;
  // Guards
  int64_t max_skips = 10;
  OnSpike on_spike = OnSpike::kWarn;
  double spike_deviations = 8;
  // Bookkeeping
  int64_t logging_steps = 10, eval_steps = -1, eval_batches = 16, save_steps = 0, keep_checkpoints = 3,
          keep_every = 0, stop_at = 0;
  int64_t threads = 0, patience = 0;
  double save_minutes = 10;
  bool keep_best = true;
  BestBy best_by = BestBy::kLoss;
  int64_t eval_translations = 0;
  BleuTokens bleu_tokenize = BleuTokens::k13a;
  std::string init_from, stage;
  bool init_optimizer = false;

  void describe(Fields& fields);
};

/// Section "eval": what is asked of the model whenever it is evaluated, to be read by people.
struct EvalConfig {
  std::vector<std::string> prompts;
  std::string prompts_file;
  int64_t samples = 3, sample_tokens = 64, top_k = 0;
  double temperature = 0, top_p = 1;
  std::string suite;
  int64_t suite_steps = 0;

  void describe(Fields& fields);
};

}  // namespace tightloop
