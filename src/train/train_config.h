#pragma once

#include <cstdint>
#include <string>

namespace tightloop {

class Fields;

/// Section "train": the loop.
struct TrainConfig {
  std::string device = "auto", precision = "auto";
  int64_t steps = 1000, micro_batch = 32, accumulate = 1, seed = 1337;
  double epochs = 0;
  // Loss
  std::string loss_norm = "global", fused_head = "auto";
  double label_smoothing = 0, z_loss = 0;
  std::string smoothing = "uniform";
  // Optimizer
  std::string optimizer = "adamw";
  double lr = 3e-4, weight_decay = 0.1, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, clip = 1.0;
  bool decay_vectors = false;
  double matrix_lr = 0.02, embedding_lr = 0.3, unembedding_lr = 0.008, scalar_lr = 0.5, lr_scale = 1;
  double muon_weight_decay = 0.28, muon_beta2 = 0.9;
  double muon_momentum = 0.97, muon_momentum_start = 0.85, muon_momentum_end = 0.9;
  int64_t muon_momentum_steps = 400;
  std::string muon_decay_schedule = "cosine";
  // Schedule
  std::string schedule = "cosine";
  int64_t warmup_steps = 0;
  double warmup_ratio = 0, min_lr = 0.1, decay_fraction = 0.2;
  // Step engine
  std::string graph = "auto";
  int64_t loss_extract_interval = 10, empty_cache_steps = 0, loss_scale_growth_steps = 2000;
  double loss_scale = 65536, memory_limit = 0;
  bool deterministic = false, debug_syncs = false, set_to_none = true, copy_stream = true, copy_ahead = true,
       time_parts = true, pools = true;
  // Bookkeeping
  int64_t logging_steps = 10, eval_steps = -1, eval_batches = 16, save_steps = 0, keep_checkpoints = 3,
          stop_at = 0;
  int64_t threads = 0, patience = 0;
  double save_minutes = 10;
  bool keep_best = false;
  int64_t eval_translations = 0;
  std::string bleu_tokenize = "13a";
  std::string init_from, stage;

  void describe(Fields& fields);
};

}  // namespace tightloop
