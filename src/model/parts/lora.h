#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "model/files/safetensors.h"
#include "model/parts/parameters.h"

namespace tightloop {

/// Section "lora": low-rank adapters instead of training the weights themselves.
struct LoraConfig {
  int64_t rank = 0;
  double alpha = 16;
  std::vector<std::string> layers{"blocks.*.qkv", "blocks.*.out"};

  void describe(Fields& fields);
  bool on() const { return rank > 0; }
  double scale() const { return alpha / static_cast<double>(rank); }
};

/// Freezes a model and puts adapters beside some of its weights: W becomes W + scale * B A, with A (rank, in)
/// and B (out, rank), stacks of matrices alike. parameters() is then all that there is to train. The families
/// read the handles that they always had: refresh() puts the sum behind them, as part of the graph, so that
/// gradients arrive at A and B.
class Adapters {
 public:
  /// Weights by name or pattern (blocks.*.qkv); a usage error when one of `config.layers` names no matrix.
  Adapters(Parameters& model, const LoraConfig& config, uint64_t seed);

  /// The adapters: NAME.lora_a and NAME.lora_b.
  Parameters& parameters() { return own_; }
  /// The model's weights as they were found, in fp32 on the CPU.
  const NamedTensors& frozen() const { return frozen_; }
  /// Before every forward pass: the sum with the adapters as they are now, on their device and in their
  /// dtype.
  void refresh();

 private:
  struct Adapted {
    at::Tensor handle;  // what the family reads
    at::Tensor base, a, b;
  };
  Parameters own_;
  double scale_;
  std::vector<Adapted> adapted_;
  NamedTensors frozen_;
};

/// Adds saved adapters to the weights that they belong to and takes them out: what a model without adapters
/// loads.
void merge_adapters(Safetensors& weights, const LoraConfig& config);
/// Only takes them out.
void drop_adapters(Safetensors& weights);

}  // namespace tightloop
