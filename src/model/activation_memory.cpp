#include "model/activation_memory.h"

#include <fmt/format.h>

#include "model/family.h"
#include "model/parts/activation_tape.h"

namespace tightloop {

namespace {

/// Of a family that does not say what its operators keep, rather too much: for each norm its input and
/// statistics, for each product its input and its result (the last one's is the stream, which the next block
/// keeps), and of attention, whose output is the input of a product, the rows' sums.
ActivationMemory estimated_activations(const ModelConfig& config, const PassShape& shape) {
  const BlockSizes s(config, shape);
  const auto model = make_shapes(config);
  ActivationMemory memory{.state = s.D, .after = s.D + s.floats(2)};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto prefix = fmt::format("blocks.{}.", layer);
    Tape tape;
    double result = s.floats(config.heads);  // of the product before, kept by what follows it
    for (const auto& [name, value, role, parts] : model->parameters().all()) {
      if (!name.starts_with(prefix)) continue;
      if (role == ParameterRole::kNorm) tape.branch(s.D + s.floats(2), s.D);
      if (role != ParameterRole::kMatrix || value.dim() < 2) continue;
      const int64_t visits = value.dim() == 3 ? config.experts_per_token : 1;
      const double input = s.wide(visits * value.size(-1));
      tape.add(result + input, input);
      result = s.wide(visits * value.size(-2));
    }
    memory.blocks.push_back(tape.run(s.D, s.D));
  }
  return memory;
}

}  // namespace

ActivationMemory activation_memory(const ModelConfig& config, const PassShape& shape) {
  const Family& family = family_of(config);
  return (family.activations ? family.activations : estimated_activations)(config, shape);
}

}  // namespace tightloop
