#include <limits>

#include "core/error.h"
#include "model/families/nanochat/nanochat.h"
#include "model/family.h"
#include "model/parts/rotary.h"

namespace tightloop {

namespace {

void nanochat_defaults(ModelConfig& config) {
  constexpr int64_t kHead = 128, kWidthPerLayer = 64;
  if (config.depth > 0) {
    config.layers = config.depth;
    config.width = (config.depth * kWidthPerLayer + kHead - 1) / kHead * kHead;
    config.heads = config.width / kHead;
    config.head_size = kHead;
  }
  if (config.width < kSmearChannels)
    throw usage_error("model.width is {}; nanochat's gates read {} of it.", config.width, kSmearChannels);
  if (config.context == 0)
    throw usage_error("nanochat's windows are parts of the context: set model.context.");
  if (config.window_pattern.empty() || config.window_pattern.find_first_not_of("SL") != std::string::npos)
    throw usage_error("model.window_pattern is '{}'; it takes the letters S and L.", config.window_pattern);
  if (config.rope_scaling != RopeScaling::kNone)
    throw usage_error("nanochat does not stretch its positions: leave out model.rope_scaling.");
  if (config.dropout != 0) throw usage_error("nanochat has no dropout: leave out model.dropout.");
  config.tie_embeddings = false;
  if (config.softcap == 0) config.softcap = 15;
  if (config.rope_theta == 0) config.rope_theta = 100000;
  if (config.norm_eps == 0) config.norm_eps = std::numeric_limits<float>::epsilon();
  if (config.ffn == 0) config.ffn = 4 * config.width;
}

int64_t nanochat_window(const ModelConfig& config, int64_t layer) {
  const bool last = layer == config.layers - 1;
  if (last || config.window_pattern[layer % config.window_pattern.size()] == 'L') return config.context;
  return (config.context + 4 * 128 - 1) / (4 * 128) * 128;  // a quarter, rounded up to 128s
}

const AddFamily kAddNanochat{{
    .name = "nanochat",
    .make = make_family<Nanochat>,
    .has = {.depth = true, .paged = true, .previous_token = true, .own_init = true},
    .presets =
        {
            {"nanochat-d4", {{"depth", "4"}}},
            {"nanochat-d12", {{"depth", "12"}}},
            {"nanochat-d20", {{"depth", "20"}}},
        },
    .defaults = nanochat_defaults,
    .check = check_rotary,
    .window = nanochat_window,
    .activations = nanochat_activations,
}};

}  // namespace

}  // namespace tightloop
