#include "model/least_values.h"

#include "model/family.h"

namespace tightloop {

double least_values(const ModelConfig& config) {
  // The embedding, and what each layer has at the least.
  const auto D = static_cast<double>(config.width), L = static_cast<double>(config.layers);
  const auto queries = static_cast<double>(config.heads) * static_cast<double>(config.head_size);
  const auto keys = static_cast<double>(config.kv_heads) * static_cast<double>(config.head_size);
  const double ffn = config.has_experts()
                         ? 3 * static_cast<double>(config.experts) * static_cast<double>(config.expert_ffn)
                         : 2 * static_cast<double>(config.ffn);
  const bool positions = family_of(config).has.learned_positions;
  return static_cast<double>(config.vocab_size) * D + L * D * (2 * queries + 2 * keys + ffn) +
         (positions ? static_cast<double>(config.context) * D : 0);
}

}  // namespace tightloop
