#include "model/model_size.h"

#include <algorithm>

#include "model/model.h"

namespace tightloop {

ModelSize model_size(const ModelConfig& config) {
  const auto model = make_shapes(config);
  const at::Tensor head = model->head().weight_VD;
  ModelSize size;
  for (const auto& [name, value, role, parts] : model->parameters().all()) {
    const bool looked_up = role == ParameterRole::kEmbedding || role == ParameterRole::kValueEmbedding;
    const bool experts = value.dim() == 3;  // (experts, out, in)
    const int64_t met = experts ? value.numel() / value.size(0) * config.experts_per_token : value.numel();
    size.total += value.numel();
    size.active += met;
    if (looked_up) size.embedding += value.numel();
    if (role != ParameterRole::kEmbedding && role != ParameterRole::kHead) size.blocks += value.numel();
    if (value.is_same(head) || (value.dim() >= 2 && !looked_up)) size.matmul += met;
  }
  size.head = head.numel();
  return size;
}

double flops_per_token(const ModelConfig& config, int64_t context) {
  double seen = 0;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const int64_t window = config.window(layer);
    seen += static_cast<double>(window > 0 ? std::min(window, context) : context);
  }
  // A pair of tokens, one of each side: the encoder attends too, and the decoder across.
  if (config.translates()) seen += static_cast<double>((config.encoder_layers + config.layers) * context);
  const auto width = static_cast<double>(config.heads * config.head_size);
  return 6.0 * static_cast<double>(model_size(config).matmul) + 12.0 * width * seen;
}

}  // namespace tightloop
