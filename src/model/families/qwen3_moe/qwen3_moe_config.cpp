// Qwen3 with experts.
#include "core/error.h"
#include "model/families/llama/llama.h"
#include "model/family.h"
#include "model/parts/rotary.h"

namespace tightloop {

namespace {

void check_qwen3_moe(const ModelConfig& config) {
  check_rotary(config);
  if (config.experts_per_token > config.experts) {
    throw usage_error("model.experts_per_token ({}) is larger than model.experts ({}).",
                      config.experts_per_token, config.experts);
  }
}

const AddFamily kAddQwen3Moe{{
    .name = "qwen3_moe",
    .make = make_family<Llama>,
    .has = {.experts = true, .qk_norm = true, .paged = true},
    .presets = {{"minimind-moe-198m",
                 {{"layers", "8"},
                  {"width", "768"},
                  {"heads", "8"},
                  {"kv_heads", "4"},
                  {"expert_ffn", "2432"},
                  {"vocab_size", "6400"},
                  {"rope_theta", "1e6"},
                  {"experts", "4"},
                  {"experts_per_token", "1"}}}},
    .check = check_qwen3_moe,
    .activations = llama_activations,
    .hugging_face = llama_layout("Qwen3MoeForCausalLM"),
}};

}  // namespace

}  // namespace tightloop
