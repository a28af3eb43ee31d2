#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/choice.h"

namespace tightloop {

/// How a parameter starts.
struct Init {
  /// Normal with spread `std`, uniform in [low, high], or evenly spaced from low to high.
  enum Kind { kNormal, kUniform, kRamp, kOnes, kZeros } kind = kNormal;
  double std = 0.02;
  double low = 0, high = 1;
};

/// Decides all initial weights, together with each parameter's name and index: the same on every device.
struct Seed {
  Seed(uint64_t number) : number(number) {}  // NOLINT: a number is a seed
  /// No weights at all: parameters have a shape and no memory (torch's meta device), whatever their size.
  static Seed shapes_only() {
    Seed seed(0);
    seed.weights = false;
    return seed;
  }
  uint64_t number;
  bool weights = true;
};

/// What a parameter is for. The model says so where it makes the parameter; optimizers decide by it.
enum class ParameterRole {
  kMatrix,  // of a block
  kEmbedding,
  kHead,
  kNorm,
  kBias,
  // nanochat's
  kValueEmbedding,
  kResidualScale,
  kInputScale,
  kSmear,
};
template <>
inline constexpr auto kChoices<ParameterRole> = std::to_array<Choice<ParameterRole>>({
    {ParameterRole::kMatrix, "matrix"},
    {ParameterRole::kEmbedding, "embedding"},
    {ParameterRole::kHead, "head"},
    {ParameterRole::kNorm, "norm"},
    {ParameterRole::kBias, "bias"},
    {ParameterRole::kValueEmbedding, "value_embedding"},
    {ParameterRole::kResidualScale, "residual_scale"},
    {ParameterRole::kInputScale, "input_scale"},
    {ParameterRole::kSmear, "smear"},
});

struct Parameter {
  std::string name;
  at::Tensor value;  // a leaf that requires grad, in the compute dtype
  ParameterRole role;
  std::vector<int64_t> parts;  // rows of the matrices stacked in it, such as q, k and v
};

/// The named tensors of a model, in the order in which they were added. A model keeps the handles that add()
/// gives; to() changes what is behind them, so they stay good.
class Parameters {
 public:
  explicit Parameters(Seed seed) : seed_(seed) {}
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  /// A new fp32 parameter on the CPU, or a shape alone where the seed says so. `parts` are the rows of the
  /// matrices that are stacked in it; none: it is one.
  at::Tensor add(const std::string& name, at::IntArrayRef shape, Init init, ParameterRole role,
                 std::vector<int64_t> parts = {});
  /// Moves every parameter to a device and compute dtype; packed weights keep theirs.
  void to(at::Device device, at::ScalarType dtype);

  /// To be called before the weights of a block are read in training: LanguageModel::run_block does. Who
  /// brings weights while earlier blocks compute waits for them there.
  void need_block(int64_t layer) const {
    if (before_block_) before_block_(layer);
  }
  void set_before_block(std::function<void(int64_t layer)> wait) { before_block_ = std::move(wait); }

  const std::deque<Parameter>& all() const { return all_; }
  const Parameter* find(const std::string& name) const;
  int64_t count() const;
  std::vector<at::Tensor> values() const;

 private:
  Seed seed_;
  std::deque<Parameter> all_;
  std::unordered_map<std::string_view, const Parameter*> by_name_;
  std::function<void(int64_t layer)> before_block_;
};

}  // namespace tightloop
