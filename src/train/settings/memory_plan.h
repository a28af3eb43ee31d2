#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "model/activation_memory.h"
#include "model/model_size.h"
#include "train/dist_config.h"
#include "train/optim/bucket_plan.h"
#include "train/settings/recipe.h"

namespace tightloop {

/// What a training holds on the device when it holds most, in bytes. Adapters are counted as if all weights
/// were trained.
struct MemoryPlan {
  double weights = 0, masters = 0, moments = 0;
  double gradients =
      0;  // fp32 sums where micro-batches accumulate, and what the micro-batch at work has made
  double activations = 0;  // kept for the backward pass
  double working = 0;      // what an operator needs while it runs: the head's logits, a block's gradients
  double total() const { return weights + masters + moments + gradients + activations + working; }
};

/// One way to run a recipe.
struct MemoryChoice {
  int64_t micro_batch = 1, accumulate = 1;
  int64_t recomputed = 0;  // blocks, from the first on
  bool chunked = true;     // the head makes logits by chunks of rows
};

/// Works out peaks for a recipe: a model, its optimizer, rows of `length` tokens. `cuda`: with the GPU's
/// operators, which work in other memory than the CPU's.
class MemoryPlanner {
 public:
  MemoryPlanner(ModelConfig model, TrainConfig train, int64_t length, int64_t element, bool cuda)
      : model_(std::move(model)),
        train_(std::move(train)),
        size_(model_size(model_)),
        length_(length),
        element_(element),
        cuda_(cuda) {}

  /// The same of the one of `world` processes that holds most, of a training as `dist` divides it.
  MemoryPlanner among(const DistConfig& dist, int64_t world) const;

  /// What the recipe says. "auto" checkpointing counts as none.
  MemoryChoice written() const;
  MemoryPlan plan(const MemoryChoice& choice) const;

  /// The same micro-batch with as few blocks computed again as fit into `bytes`; nothing where none do.
  std::optional<MemoryChoice> with_checkpointing(MemoryChoice choice, double bytes) const;
  /// The way that costs least time among those with the recipe's rows a step that fit: as it is written; the
  /// head by chunks; smaller micro-batches, as long as they keep a GPU busy; blocks computed again; micro-
  /// batches down to one row.
  std::optional<MemoryChoice> advice(double bytes) const;

 private:
  /// What processes that train together hold besides, or do not.
  struct Share {
    double owned = 0, owned_matrices = 0;  // parameters that it updates, and those of them that Muon does
    double buckets = 0;                    // of gradients, in bytes, while they arrive
    double summed = 0;                     // the same when they have, and the update reads them
    double largest_gradient = 0;           // bytes
    double update_working = 0;             // bytes
    bool taken_at_once = false;            // gradients leave the parameters as backward makes them
  };

  double parameters_of_a_block() const;
  double muon_parameters() const;
  /// What Muon's update of so many matrices works in.
  double muon_working(const MatrixCounts& matrices) const;

  ModelConfig model_;
  TrainConfig train_;
  ModelSize size_;
  int64_t length_, element_;
  bool cuda_;
  std::optional<Share> share_{};  // nothing: it is alone
};

/// The share of a device's memory that a plan may fill: allocators lose some between blocks.
constexpr double kUsableMemory = 0.9;

/// model.gradient_checkpointing as it is to be run: "auto" becomes as few blocks as fit into `memory` bytes
/// of a device, or all where nothing fits.
std::string resolved_checkpointing(const MemoryPlanner& planner, const ModelConfig& model, double memory);
/// The recipe's model, resolved, with that resolved for a device (train.memory_limit counts).
ModelConfig resolved_model(const Recipe& recipe, const Device& device);

/// Ends a run on a CPU that would not fit into the machine's memory (or train.memory_limit) before it starts:
/// the kernel would kill it. `model`: the recipe's as resolved_model() gives it. Error(kDevice) says what
/// would fit.
void refuse_too_large(const Recipe& recipe, const ModelConfig& model, const Device& device);

/// Whether a step is one after which the allocator's memory is looked at, whatever is logged.
bool memory_is_checked(int64_t step);
/// Whether the allocator's cache is emptied after a step: every train.empty_cache_steps, and where it holds
/// nearly all of what it may have (train.memory_limit, or the device's `total`).
bool empties_cache(const TrainConfig& train, int64_t step, const MemoryStats& memory, int64_t total);

/// What model.gradient_checkpointing says for so many blocks: "none", "all" or the number.
std::string checkpointing_text(int64_t blocks, const ModelConfig& model);

}  // namespace tightloop
