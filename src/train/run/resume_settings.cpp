#include "train/run/resume_settings.h"

namespace tightloop {

bool names_files(const std::string& key) {
  static const std::set<std::string> keys{"data.train", "data.val", "data.train_target", "data.val_target",
                                          "data.mixture"};
  return keys.contains(key);
}

const std::set<std::string>& settings_that_may_change() {
  static const std::set<std::string> keys{
      // Who does the work, and where results of it are kept.
      "data.missing", "data.tokenize", "data.cache", "data.num_workers", "data.prefetch_factor",
      "data.pin_memory", "data.tokenizer_threads", "data.tokenizer_batch_size", "data.on_bad_record",
      // The place in the data is kept by what was seen.
      "train.micro_batch", "train.accumulate", "train.step_tokens", "train.data_ratio",
      "train.init_optimizer",
      // How it is computed.
      "model.gradient_checkpointing", "train.device", "train.precision", "train.threads", "train.fused_head",
      "train.fp8_head", "train.autotune", "train.graph", "train.deterministic", "train.memory_limit",
      "train.empty_cache_steps", "train.copy_stream", "train.copy_ahead", "train.pools", "train.set_to_none",
      "train.time_parts", "train.debug_syncs", "train.loss_scale", "train.loss_scale_growth_steps",
      "train.loss_extract_interval", "ops.plain",
      // Whose work it is.
      "dist.shard", "dist.reduce", "dist.overlap", "dist.bucket_mb", "dist.backend",
      // What is learned by the same weights: rates, schedule, regularization.
      "model.dropout", "model.balance_coef", "train.steps", "train.epochs", "train.loss_norm",
      "train.label_smoothing", "train.smoothing", "train.z_loss", "train.lr", "train.schedule",
      "train.warmup_steps", "train.warmup_ratio", "train.min_lr", "train.decay_fraction",
      "train.weight_decay", "train.decay_vectors", "train.beta1", "train.beta2", "train.eps", "train.clip",
      "train.matrix_lr", "train.embedding_lr", "train.unembedding_lr", "train.scalar_lr", "train.lr_scale",
      "train.muon_weight_decay", "train.muon_decay_schedule", "train.muon_beta2", "train.muon_momentum",
      "train.muon_momentum_start", "train.muon_momentum_steps", "train.muon_momentum_end",
      // What is done about steps that go wrong.
      "train.max_skips", "train.on_spike", "train.spike_deviations",
      // What is looked at, said and saved.
      "train.logging_steps", "train.eval_steps", "train.eval_batches", "train.eval_translations",
      "train.bleu_tokenize", "train.save_steps", "train.save_minutes", "train.keep_checkpoints",
      "train.keep_best", "train.best_by", "eval.prompts", "eval.prompts_file", "eval.samples",
      "eval.sample_tokens", "eval.temperature", "eval.top_k", "eval.top_p", "eval.suite", "eval.suite_steps",
      "train.keep_every", "train.patience", "train.stop_at", "log.detail_steps", "log.dataset_metrics_steps",
      "log.memory_steps", "log.flops", "log.flops_steps", "log.flush_steps", "log.reduced_logging",
      "log.log_dataset_metrics", "log.asynchronous", "log.tensorboard", "log.csv", "wandb.mode",
      "wandb.project", "wandb.entity", "wandb.name", "wandb.id", "wandb.tags", "wandb.python"};
  return keys;
}

bool may_change(const std::string& key) { return settings_that_may_change().contains(key); }

}  // namespace tightloop
