// Llama with biases of queries, keys and values.
#include "model/families/llama/llama.h"
#include "model/family.h"
#include "model/parts/rotary.h"

namespace tightloop {

namespace {

const AddFamily kAddQwen2{{
    .name = "qwen2",
    .make = make_family<Llama>,
    .has = {.qkv_bias = true, .paged = true},
    .presets = {{"qwen2.5-0.5b",
                 {{"layers", "24"},
                  {"width", "896"},
                  {"heads", "14"},
                  {"kv_heads", "2"},
                  {"ffn", "4864"},
                  {"vocab_size", "151936"},
                  {"rope_theta", "1e6"}}}},
    .check = check_rotary,
    .activations = llama_activations,
    .hugging_face = llama_layout("Qwen2ForCausalLM"),
}};

}  // namespace

}  // namespace tightloop
