#include "core/error.h"
#include "model/families/gpt2/gpt2.h"
#include "model/family.h"

namespace tightloop {

namespace {

void gpt2_defaults(ModelConfig& config) {
  if (config.context == 0)
    throw usage_error("gpt2 learns its positions: set model.context to the longest sequence it shall see.");
  if ((config.kv_heads != 0 && config.kv_heads != config.heads) ||
      (config.head_size != 0 && config.head_size * config.heads != config.width))
    throw usage_error(
        "gpt2 has heads of width / heads, as many for keys and values: leave out model.kv_heads and "
        "model.head_size.");
  if (config.rope_scaling != RopeScaling::kNone)
    throw usage_error("gpt2 has no rotary positions: leave out model.rope_scaling.");
  if (config.norm_eps == 0) config.norm_eps = 1e-5;
  if (config.ffn == 0) config.ffn = 4 * config.width;
}

const AddFamily kAddGpt2{{
    .name = "gpt2",
    .make = make_family<Gpt2>,
    .has = {.learned_positions = true, .paged = true},
    .presets = {{"gpt2-124m",
                 {{"layers", "12"},
                  {"width", "768"},
                  {"heads", "12"},
                  {"vocab_size", "50304"},
                  {"context", "1024"},
                  {"norm_eps", "1e-5"}}}},
    .defaults = gpt2_defaults,
    .activations = gpt2_activations,
    .hugging_face = gpt2_layout(),
}};

}  // namespace

}  // namespace tightloop
