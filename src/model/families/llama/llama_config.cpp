#include "model/families/llama/llama.h"
#include "model/family.h"
#include "model/parts/rotary.h"

namespace tightloop {

namespace {

const AddFamily kAddLlama{{
    .name = "llama",
    .make = make_family<Llama>,
    .has = {.paged = true},
    .presets = {{"llama3.2-1b",
                 {{"layers", "16"},
                  {"width", "2048"},
                  {"heads", "32"},
                  {"kv_heads", "8"},
                  {"head_size", "64"},
                  {"ffn", "8192"},
                  {"vocab_size", "128256"},
                  {"norm_eps", "1e-5"},
                  {"rope_theta", "500000"},
                  {"rope_scaling", "llama3"},
                  {"rope_factor", "32"}}}},
    .check = check_rotary,
    .activations = llama_activations,
    .hugging_face = llama_layout("LlamaForCausalLM"),
}};

}  // namespace

}  // namespace tightloop
