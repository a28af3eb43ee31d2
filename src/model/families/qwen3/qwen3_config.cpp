// Llama with norms of queries and keys.
#include "model/families/llama/llama.h"
#include "model/family.h"
#include "model/parts/rotary.h"

namespace tightloop {

namespace {

const AddFamily kAddQwen3{{
    .name = "qwen3",
    .make = make_family<Llama>,
    .has = {.qk_norm = true, .paged = true},
    .presets =
        {
            {"qwen3-0.6b",
             {{"layers", "28"},
              {"width", "1024"},
              {"heads", "16"},
              {"kv_heads", "8"},
              {"head_size", "128"},
              {"ffn", "3072"},
              {"vocab_size", "151936"},
              {"rope_theta", "1e6"}}},
            {"minimind-64m",
             {{"layers", "8"},
              {"width", "768"},
              {"heads", "8"},
              {"kv_heads", "4"},
              {"ffn", "2432"},
              {"vocab_size", "6400"},
              {"rope_theta", "1e6"}}},
        },
    .check = check_rotary,
    .activations = llama_activations,
    .hugging_face = llama_layout("Qwen3ForCausalLM"),
}};

}  // namespace

}  // namespace tightloop
