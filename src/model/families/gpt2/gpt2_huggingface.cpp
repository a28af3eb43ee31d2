#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "model/families/gpt2/gpt2.h"
#include "model/files/huggingface_settings.h"

namespace tightloop {

namespace {

void read_gpt2(HuggingFaceSettings& settings, ModelConfig& config) {
  config.vocab_size = settings.size("vocab_size");
  config.context = settings.size("n_positions", 1024);
  config.width = settings.size("n_embd");
  config.layers = settings.size("n_layer");
  config.heads = config.kv_heads = settings.size("n_head");
  config.ffn = settings.size("n_inner", 4 * config.width);
  config.norm_eps = settings.number("layer_norm_epsilon", 1e-5, kSmall, 1);
  config.tie_embeddings = settings.flag("tie_word_embeddings", true);
  config.dropout = settings.number("resid_pdrop", 0.1, 0, 0.99);
  for (const auto* key : {"embd_pdrop", "attn_pdrop"})
    if (settings.number(key, 0.1, 0, 0.99) != config.dropout)
      throw checkpoint_error("'{}': {} and resid_pdrop differ, and there is one dropout here.",
                             settings.file(), key);
  settings.only("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  settings.only("scale_attn_weights", {true});
  settings.only("scale_attn_by_inverse_layer_idx", {false});
  settings.only("add_cross_attention", {false});
}

void write_gpt2(const ModelConfig& config, nlohmann::ordered_json& json) {
  json.update(nlohmann::ordered_json{{"activation_function", "gelu_new"},
                                     {"vocab_size", config.vocab_size},
                                     {"n_positions", config.context},
                                     {"n_embd", config.width},
                                     {"n_layer", config.layers},
                                     {"n_head", config.heads},
                                     {"n_inner", config.ffn},
                                     {"layer_norm_epsilon", config.norm_eps},
                                     {"resid_pdrop", config.dropout},
                                     {"embd_pdrop", config.dropout},
                                     {"attn_pdrop", config.dropout}});
}

std::vector<HuggingFaceSlot> gpt2_slots(const ModelConfig& config, const HuggingFaceLayout::There&) {
  std::vector<HuggingFaceSlot> slots{{.name = "transformer.wte.weight", .parameter = "embedding"},
                                     {.name = "transformer.wpe.weight", .parameter = "positions"}};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto add = [&](const char* theirs, const char* ours, bool transposed) {
      slots.push_back({.name = fmt::format("transformer.h.{}.{}", layer, theirs),
                       .parameter = fmt::format("blocks.{}.{}", layer, ours),
                       .transposed = transposed});
    };
    add("ln_1.weight", "attention_norm", false), add("ln_1.bias", "attention_norm_bias", false);
    add("attn.c_attn.weight", "qkv", true), add("attn.c_attn.bias", "qkv_bias", false);
    add("attn.c_proj.weight", "out", true), add("attn.c_proj.bias", "out_bias", false);
    add("ln_2.weight", "ffn_norm", false), add("ln_2.bias", "ffn_norm_bias", false);
    add("mlp.c_fc.weight", "up", true), add("mlp.c_fc.bias", "up_bias", false);
    add("mlp.c_proj.weight", "down", true), add("mlp.c_proj.bias", "down_bias", false);
  }
  slots.push_back({.name = "transformer.ln_f.weight", .parameter = "final_norm"});
  slots.push_back({.name = "transformer.ln_f.bias", .parameter = "final_norm_bias"});
  return slots;
}

}  // namespace

HuggingFaceLayout gpt2_layout() {
  return {.architecture = "GPT2LMHeadModel",
          .prefix = "transformer.",
          .read = read_gpt2,
          .write = write_gpt2,
          .slots = gpt2_slots};
}

}  // namespace tightloop
