#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/prefetcher.h"
#include "model/files/safetensors.h"
#include "model/model_config.h"
#include "model/parts/parameters.h"
#include "train/engine/held_out_sums.h"
#include "train/engine/loss.h"
#include "train/engine/staging.h"
#include "train/run/run_folder.h"
#include "train/settings/recipe.h"

namespace tightloop {

struct Checkpoint;
class Documents;
struct PairTokenizers;
class Seq2Seq;
class Tokenizer;

/// Pairs that a translator was not trained on, and what translates them.
struct HeldOutPairs {
  Seq2Seq& model;
  const Documents& pairs;
  const Tokenizer& target;
  const PairTokenizers& tokenizers;
};

/// What is learned: data, a model and a loss. The Trainer does the rest, the same for every task.
class Task {
 public:
  /// Values by the names that they are logged under; the first is the held-out loss.
  using Evaluation = std::vector<std::pair<std::string, double>>;

  virtual ~Task() = default;

  virtual const ModelConfig& config() const = 0;
  /// What is trained, fp32 on the CPU at first.
  virtual Parameters& trained() = 0;
  /// Where and how the rest computes; what is trained is the optimizer's business.
  virtual void move_to(at::Device device, at::ScalarType dtype) = 0;
  /// Weights that are saved beside the trained ones.
  virtual NamedTensors frozen() const { return {}; }

  /// Names of the numbers by which losses are told apart.
  virtual const std::vector<std::string>& sources() const = 0;
  /// A sentence about model and data for the start of a run.
  virtual std::string description() const = 0;
  /// Tokens in a full micro-batch.
  virtual int64_t positions() const = 0;

  /// Samples in a micro-batch, as the place in the data counts them: rows, or batches of pairs.
  virtual int64_t samples() const = 0;
  /// Samples in one pass over the training data.
  virtual uint64_t epoch_samples() = 0;
  /// Starts loading at a micro-batch, counted from 0, for this process of several, after so many samples of
  /// all processes.
  virtual void open(int64_t first_micro_batch, int64_t consumed, int rank, int world) = 0;
  /// The next micro-batch of what open() started, in host memory; numbers and random are not set.
  virtual Staged next(bool pin) = 0;
  /// One of those that next() has given, once more; and where each of its rows comes from, for messages.
  virtual Staged again(int64_t micro_batch) = 0;
  virtual std::vector<std::string> origins(int64_t micro_batch) const = 0;
  /// Seconds that next() has waited for data since open().
  virtual double waited() const = 0;
  /// How many micro-batches were ready when next() took one, since open().
  virtual QueueDepth depth() const = 0;

  /// See StepEngine::Objective.
  virtual BatchLoss loss(const std::vector<at::Tensor>& parts, const at::Tensor& scale, bool metrics) = 0;
  /// Why evaluate() would fail, as a sentence with the numbers; empty where it will not. For the start of a
  /// run, when there is time to do something about it.
  virtual std::string why_no_evaluation() const = 0;
  /// On held-out data: one process's share of the batches.
  virtual HeldOutSums evaluate(int rank, int world) = 0;
  /// To be called before the model is used for anything but loss().
  virtual void refresh_weights() {}
  /// Forward and backward of one token.
  virtual double flops_per_token() const = 0;

  /// For those who use what was trained: the language model and its tokenizer. An error where the task trains
  /// none.
  virtual LanguageModel& language_model();
  virtual const Tokenizer& tokenizer() const;
  /// What a language model is not trained on; null where the task has no text.
  virtual const Documents* held_out_documents() const { return nullptr; }
  /// Of a task that trains a translator.
  virtual std::optional<HeldOutPairs> held_out_pairs() { return {}; }
};

/// What the recipe's model is for: a language model on rows, or an encoder-decoder on pairs. Fills in what
/// the recipe leaves open, and tells `metadata` what checkpoints should say. `from`: what a run goes on from;
/// null: a new one.
std::unique_ptr<Task> make_task(Recipe& recipe, const RunFolder& run, nlohmann::json& metadata,
                                const Checkpoint* from = nullptr);

}  // namespace tightloop
