#include "train/train_config.h"

#include "core/config.h"

namespace tightloop {

void TrainConfig::describe(Fields& fields) {
  fields.add("init_from", init_from,
             "Start from the weights of a run (also RUN@best, RUN@300), a checkpoint, a Hugging Face "
             "folder or a GGUF file; its model and tokenizer "
             "are taken over where the recipe says nothing else");
  fields.add("init_optimizer", init_optimizer,
             "With a run as train.init_from: its optimizer's moments too; learning rates are this recipe's");
  fields.add("stage", stage, "What this run is a stage of, such as base, mid or sft: kept in checkpoints");
  fields.add("device", device, "Where to train: auto (a GPU where there is one), cpu, cuda or cuda:N");
  fields.add("precision", precision, "Compute dtype; master weights and accumulation stay in fp32");
  fields
      .add("epochs", epochs,
           "Passes over the training data, in place of train.steps, which follows from it; 0: train.steps "
           "counts")
      .range(0, 1e9);
  fields
      .add("steps", steps,
           "Optimizer steps, counted from 1; with train.epochs they follow from it. Both 0: as many epochs "
           "as suit the data and the device")
      .range(0, 1e15);
  fields
      .add("micro_batch", micro_batch,
           "Rows in one forward and backward pass; 0: by the size of the data and the device's memory")
      .range(0, 1 << 20);
  fields.add("accumulate", accumulate, "Gradient accumulation: micro-batches per optimizer step")
      .range(1, 1 << 20);
  fields
      .add("step_tokens", step_tokens,
           "Tokens of an optimizer step, over all processes: train.accumulate follows from it; 0: "
           "train.accumulate counts")
      .range(0, 1e15);
  fields
      .add("data_ratio", data_ratio,
           "With model.depth: tokens to train on for each parameter in matrices and head (nanochat: 12), "
           "which train.steps follow from")
      .range(0, 1e6);
  fields.add("loss_norm", loss_norm, "What the loss is divided by");
  fields
      .add("fused_head", fused_head,
           "Fused linear cross-entropy: logits, loss and gradients in chunks, so that the logits are never "
           "whole in memory; auto: where they are above 128 MiB")
      .on_off("on", "off")
      .alias("use_liger_kernels");
  fields.add(
      "fp8_head", fp8_head,
      "With train.precision fp8: the head's products in fp8 too, where the vocabulary is a multiple of 64 "
      "(model.vocab_size may be larger than the tokenizer's); a step is shorter, and the loss suffers");
  fields
      .add("label_smoothing", label_smoothing,
           "Label smoothing: fraction of each target that is spread over the vocabulary")
      .range(0, 1);
  fields.add("smoothing", smoothing, "seq2seq: where the weight goes that label smoothing takes");
  fields.add("z_loss", z_loss, "z-loss: coefficient of log(sum exp logits)^2 of each token").range(0, 1);
  fields.add("optimizer", optimizer, "Optimizer");
  fields
      .add("lr", lr,
           "adamw: peak learning rate (schedule noam: its factor); -1: by the size of the model, for one "
           "that is "
           "trained already (train.init_from)")
      .range(-1, 1e6);
  fields.add("schedule", schedule, "Learning-rate schedule after the warm-up");
  fields.add("warmup_steps", warmup_steps, "Steps in which the learning rate rises from 0").range(0, 1e15);
  fields
      .add("warmup_ratio", warmup_ratio,
           "Warm-up as a fraction of all steps, where train.warmup_steps is 0; a run's config.yaml holds the "
           "steps")
      .range(0, 1);
  fields.add("min_lr", min_lr, "Final learning rate of cosine, linear and wsd, as a fraction of the peak")
      .range(0, 1);
  fields
      .add("decay_fraction", decay_fraction,
           "wsd: fraction of all steps, at the end, in which the learning rate decays")
      .range(0, 1);
  fields.add("weight_decay", weight_decay, "adamw: weight decay of matrices and embeddings").range(0, 100);
  fields.add("decay_vectors", decay_vectors, "adamw: weight decay of norms and biases too");
  fields.add("beta1", beta1, "adamw: beta1").range(0, 1);
  fields.add("beta2", beta2, "adamw: beta2").range(0, 1);
  fields.add("eps", eps, "adamw: epsilon").range(0, 1);
  fields.add("clip", clip, "Gradient clipping: largest global norm; 0: no clipping").range(0, 1e9);
  fields.add("matrix_lr", matrix_lr, "muon: peak learning rate of the layers' matrices").range(0, 1e6);
  fields
      .add("embedding_lr", embedding_lr,
           "muon: peak learning rate of embeddings (half of it for value embeddings), divided by sqrt(width "
           "/ 768)")
      .range(0, 1e6);
  fields
      .add("unembedding_lr", unembedding_lr,
           "muon: peak learning rate of the output head, divided by sqrt(width / 768)")
      .range(0, 1e6);
  fields
      .add("scalar_lr", scalar_lr,
           "muon: peak learning rate of x0 scales; 0.01 of it for residual scales, norms and biases")
      .range(0, 1e6);
  fields.add("lr_scale", lr_scale, "muon: multiplies all of its learning rates").range(0, 1e6);
  fields
      .add("muon_weight_decay", muon_weight_decay,
           "muon: cautious weight decay of matrices (only where it agrees with the update)")
      .range(0, 100);
  fields.add("muon_decay_schedule", muon_decay_schedule, "muon: schedule of the weight decay");
  fields.add("muon_beta2", muon_beta2, "muon: beta2 of the factored second moment").range(0, 1);
  fields.add("muon_momentum", muon_momentum, "muon: momentum after its warm-up").range(0, 1);
  fields.add("muon_momentum_start", muon_momentum_start, "muon: momentum of the first step").range(0, 1);
  fields.add("muon_momentum_steps", muon_momentum_steps, "muon: steps of the momentum warm-up")
      .range(0, 1e15);
  fields.add("muon_momentum_end", muon_momentum_end, "muon: final momentum with schedule wsd").range(0, 1);
  fields
      .add("loss_extract_interval", loss_extract_interval,
           "Read losses from the GPU every N steps, in one copy; what is logged does not depend on it. 20 to "
           "30 suit batches under 20 rows, 5 to 10 those above 50; 1: the host waits for every step")
      .range(1, 100000)
      .alias("loss-extract-interval");
  fields
      .add(
          "graph", graph,
          "CUDA graphs of forward, backward and update, one for each shape; auto: where they can be captured")
      .on_off("on", "off");
  fields.add("autotune", autotune,
             "GPU: time the library's algorithms for large matrix products in the first steps and use the "
             "fastest; not with train.deterministic");
  fields.add("deterministic", deterministic,
             "The same bits in every run on the same device; a little slower on a GPU");
  fields.add("loss_scale", loss_scale, "fp16: initial loss scale").range(1e-30, 1e30);
  fields
      .add("loss_scale_growth_steps", loss_scale_growth_steps,
           "fp16: steps without overflow after which the loss scale doubles")
      .range(1, 1e9);
  fields
      .add("max_skips", max_skips,
           "Stop after so many skipped updates in a row: gradients that are not finite, or spikes; 0: never")
      .range(0, 1e9);
  fields.add("on_spike", on_spike,
             "What to do about a spike: the loss of a step above the median of the last 128 by "
             "train.spike_deviations");
  fields
      .add("spike_deviations", spike_deviations,
           "Robust standard deviations (1.48 times the median deviation) above the median that make a spike")
      .range(1, 1e6);
  fields.add("memory_limit", memory_limit, "GiB of the device's memory to use at most; 0: all").range(0, 1e6);
  fields
      .add("empty_cache_steps", empty_cache_steps,
           "Steps after which the allocator's cache is emptied; 0: only when the device is nearly full")
      .range(0, 1e9);
  fields.add("copy_stream", copy_stream,
             "Copy micro-batches to the GPU on a separate stream, beside the computation");
  fields.add("copy_ahead", copy_ahead, "Copy the next micro-batch to the GPU during this one's computation");
  fields.add("pools", pools,
             "Caching allocator for the GPU's memory; off: cudaMalloc each time (and no graphs)");
  fields.add("set_to_none", set_to_none, "Free gradients after use instead of filling them with zeros");
  fields.add("time_parts", time_parts, "Time the parts of every step on the device");
  fields.add("debug_syncs", debug_syncs, "An error where torch synchronizes with the GPU within a step");
  fields.add("seed", seed, "Decides initial weights and the order of the data").range(0, 9e15);
  fields
      .add("logging_steps", logging_steps,
           "Steps between lines of metrics.jsonl, whose loss is the mean over them; a log that is no "
           "terminal has "
           "one of these every 2 seconds at most")
      .range(1, 1e9);
  fields
      .add("eval_steps", eval_steps,
           "Steps between evaluations on held-out data; 0: only at the end; -1: about ten times in a run, "
           "and no more often than costs a ninth of the training")
      .range(-1, 1e9);
  fields.add("eval_batches", eval_batches, "Micro-batches of held-out data in an evaluation; 0: all")
      .range(0, 1e9);
  fields
      .add("eval_translations", eval_translations,
           "seq2seq: held-out pairs that an evaluation translates for BLEU and chrF; 0: none")
      .range(0, 1e9);
  fields.add("bleu_tokenize", bleu_tokenize, "seq2seq: BLEU's tokenization, as in sacreBLEU");
  fields
      .add("save_steps", save_steps,
           "Steps between checkpoints; 0: as train.save_minutes says, and at the end. One that cannot be "
           "written "
           "is a warning unless it is the last")
      .range(0, 1e9);
  fields
      .add("save_minutes", save_minutes,
           "Save also when so many minutes have passed since the last checkpoint: what a run that is killed "
           "loses at most; 0: only as train.save_steps says")
      .range(0, 1e6);
  fields.add("keep_checkpoints", keep_checkpoints, "Newest checkpoints to keep; 0: all").range(0, 1e9);
  fields.add("keep_best", keep_best,
             "Save every step that is evaluated, and keep the checkpoint of the best one (train.best_by)");
  fields.add("best_by", best_by,
             "Which evaluation is the best: for train.keep_best, train.patience and RUN@best");
  fields
      .add(
          "keep_every", keep_every,
          "Keep every checkpoint whose step is a multiple of this for ever; 0: none, the newest and the best "
          "alone")
      .range(0, 1e9);
  fields
      .add("patience", patience,
           "Stop after this many evaluations without a better one (train.best_by); 0: run to the end")
      .range(0, 1e9);
  fields
      .add("stop_at", stop_at,
           "Stop after this step, save and exit with 0; schedule and steps stay, and train --resume "
           "--train.stop_at 0 goes on; 0: run to the end")
      .range(0, 1e15);
  fields.add("threads", threads, "CPU threads for computing; 0: one for each core").range(0, 4096);
}

void EvalConfig::describe(Fields& fields) {
  fields.add("prompts", prompts,
             "Texts that every evaluation continues (of a run that learns conversations: answers; seq2seq: "
             "translates), kept in samples.jsonl; none: held-out questions, texts or sentences");
  fields.add("prompts_file", prompts_file, "A file of such texts, one a line");
  fields
      .add("samples", samples,
           "Held-out questions, texts or sentences to take where there are no prompts; 0: none")
      .range(0, 1000);
  fields.add("sample_tokens", sample_tokens, "Most tokens of a sample").range(1, 100000);
  fields.add("temperature", temperature, "Sampling temperature; 0: always the likeliest token").range(0, 100);
  fields.add("top_k", top_k, "Sample from this many likeliest tokens; 0: all").range(0, 1e9);
  fields.add("top_p", top_p, "Sample from the likeliest tokens that make up this probability").range(0, 1);
  fields.add(
      "suite", suite,
      "A suite of tasks to measure the model by while it is trained (docs/evaluation.md); empty: none");
  fields.add("suite_steps", suite_steps, "Steps between these measurements; 0: only at the end")
      .range(0, 1e15);
}

}  // namespace tightloop
