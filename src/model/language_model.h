#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "model/model.h"
#include "model/parts/block.h"
#include "model/parts/kv_cache.h"
#include "model/parts/kv_pages.h"

namespace tightloop {

/// What a forward pass is told besides its ids.
struct Pass {
  KvCache* cache = nullptr;  // the ids continue what it holds
  const PagedTokens* paged =
      nullptr;            // the ids are tokens of many sequences; where FamilyTraits::paged says so
  bool training = false;  // dropout is on, and experts' balance is measured
  at::Tensor
      documents_BT{};  // int32: which document each position belongs to, where attention must not cross
  at::Tensor document_bounds{};  // the same documents as ops::DocumentBounds; undefined: not known
  at::Tensor random{};           // int64 scalar on the device: decides what dropout drops, where it is on
};

/// What a forward pass gives: the states that the head reads, and what a mixture of experts reports.
struct Forward {
  at::Tensor hidden_BTD;
  at::Tensor balance{};  // scalar to add to the mean loss (coefficient included), where there are experts
  at::Tensor expert_loads_LE{};  // share of the choices that each expert got, by layer; no gradient
};

/// A causal language model. Shapes: B batch, T time, D width, V vocabulary, L layers, E experts.
class LanguageModel : public Model {
 public:
  using Model::Model;

  virtual Forward forward(const at::Tensor& ids_BT, const Pass& pass) = 0;
  Forward forward(const at::Tensor& ids_BT) { return forward(ids_BT, Pass{}); }

 protected:
  /// Runs the block of a layer, whose parameters are those named blocks.LAYER. In training it keeps only its
  /// inputs where config_ says so; `block` must then not refer to what ends with this pass.
  template <class Inputs, class Block>
  auto run_block(int64_t layer, const Pass& pass, const Block& block, const Inputs& inputs) {
    if (pass.training) parameters_.need_block(layer);
    if (!pass.training || pass.cache || pass.paged || layer >= config_.recomputed_blocks())
      return block(inputs);
    return recomputed_block(block, inputs, block_parameters(layer));
  }

 private:
  const std::vector<at::Tensor>& block_parameters(int64_t layer);
  std::vector<std::vector<at::Tensor>> block_parameters_;  // by layer, once they were asked for
};

/// Builds the family that the configuration names, with initial weights, fp32 on the CPU. `config` is
/// resolved.
std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, Seed seed);

}  // namespace tightloop
