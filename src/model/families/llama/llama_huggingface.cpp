#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "model/families/llama/llama.h"
#include "model/files/huggingface_settings.h"

namespace tightloop {

namespace {

void read_rope(HuggingFaceSettings& settings, ModelConfig& config) {
  config.rope_theta = settings.number("rope_theta", 10000, kSmall, kLarge);
  // transformers 4 has the stretching in rope_scaling, 5 has it together with the base in rope_parameters.
  for (const std::string key : {"rope_scaling", "rope_parameters"}) {
    if (!settings.has(key)) continue;
    HuggingFaceSettings rope = settings.part(key);
    config.rope_theta = rope.number("rope_theta", config.rope_theta, kSmall, kLarge);
    const auto kind = rope.text("rope_type", rope.text("type", "default"));
    if (rope.number("partial_rotary_factor", 1, 0, 1) != 1)
      throw checkpoint_error("'{}': partial_rotary_factor is not supported.", rope.file());
    if (kind == "default") continue;
    if (kind != "llama3")
      throw checkpoint_error("'{}': rope_type is '{}', and only default and llama3 are supported.",
                             rope.file(), kind);
    config.rope_scaling = RopeScaling::kLlama3;
    config.rope_factor = rope.number("factor", config.rope_factor, kSmall, kLarge);
    config.rope_low_freq = rope.number("low_freq_factor", config.rope_low_freq, kSmall, kLarge);
    config.rope_high_freq = rope.number("high_freq_factor", config.rope_high_freq, kSmall, kLarge);
    config.rope_original_context = rope.size("original_max_position_embeddings");
  }
  settings.only("partial_rotary_factor", {1.0});
}

void refuse_windows(HuggingFaceSettings& settings, int64_t layers) {
  const bool on = settings.flag("use_sliding_window", false) && settings.has("sliding_window") &&
                  settings.size("max_window_layers", 1) < layers;
  bool by_layer = false;
  if (settings.has("layer_types"))
    for (const auto& type : settings.get("layer_types")) by_layer |= type != "full_attention";
  if (on || by_layer)
    throw checkpoint_error("'{}': {} asks for sliding windows, which are not supported here.",
                           settings.file(), by_layer ? "layer_types" : "use_sliding_window");
}

void read_llama(HuggingFaceSettings& settings, ModelConfig& config) {
  config.vocab_size = settings.size("vocab_size");
  config.context = settings.size("max_position_embeddings", 2048);
  config.width = settings.size("hidden_size");
  config.layers = settings.size("num_hidden_layers");
  config.heads = settings.size("num_attention_heads");
  config.kv_heads = settings.size("num_key_value_heads", config.heads);
  config.norm_eps = settings.number("rms_norm_eps", 1e-6, kSmall, 1);
  config.tie_embeddings = settings.flag("tie_word_embeddings", false);
  if (settings.has("head_dim")) config.head_size = settings.size("head_dim");
  if (config.head_size == 0 && config.has_qk_norm()) config.head_size = 128;
  config.ffn = settings.size("intermediate_size");
  read_rope(settings, config);
  refuse_windows(settings, config.layers);
  settings.only("hidden_act", {"silu", "swish"});
  settings.only("attention_bias", {false});
  settings.only("mlp_bias", {false});
  settings.only("attention_dropout", {0.0});
  if (config.has_experts()) {
    config.experts =
        settings.has("num_experts") ? settings.size("num_experts") : settings.size("num_local_experts", 128);
    config.experts_per_token = settings.size("num_experts_per_tok", 8);
    config.expert_ffn = settings.size("moe_intermediate_size");
    config.norm_topk = settings.flag("norm_topk_prob", false);
    config.balance_coef = settings.number("router_aux_loss_coef", 0.001, 0, 1e3);
    settings.has("num_local_experts");
    settings.only("decoder_sparse_step", {1});
    settings.only("mlp_only_layers", {nlohmann::json::array()});
  }
}

void write_llama(const ModelConfig& config, nlohmann::ordered_json& json) {
  json.update(nlohmann::ordered_json{
      {"hidden_act", "silu"},
      {"vocab_size", config.vocab_size},
      {"max_position_embeddings", config.context},
      {"hidden_size", config.width},
      {"intermediate_size", config.ffn},
      {"num_hidden_layers", config.layers},
      {"num_attention_heads", config.heads},
      {"num_key_value_heads", config.kv_heads},
      {"head_dim", config.head_size},
      {"rms_norm_eps", config.norm_eps},
      {"rope_theta", config.rope_theta}});  // transformers 5 reads its elder's spelling, not the reverse
  if (config.rope_scaling == RopeScaling::kLlama3) {
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", config.rope_factor},
                            {"low_freq_factor", config.rope_low_freq},
                            {"high_freq_factor", config.rope_high_freq},
                            {"original_max_position_embeddings", config.rope_original_context}};
  }
  if (config.has_experts()) {
    json["num_experts"] = config.experts;
    json["num_experts_per_tok"] = config.experts_per_token;
    json["moe_intermediate_size"] = config.expert_ffn;
    json["norm_topk_prob"] = config.norm_topk;
    json["router_aux_loss_coef"] = config.balance_coef;
    json["decoder_sparse_step"] = 1;
    json["mlp_only_layers"] = nlohmann::json::array();
  }
}

std::vector<HuggingFaceSlot> llama_slots(const ModelConfig& config, const HuggingFaceLayout::There& there) {
  std::vector<HuggingFaceSlot> slots{{.name = "model.embed_tokens.weight", .parameter = "embedding"}};
  const int64_t Q = config.heads * config.head_size, K = config.kv_heads * config.head_size;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto add = [&](const std::string& theirs, const char* ours, int64_t begin = 0, int64_t rows = -1,
                         int64_t expert = -1) {
      slots.push_back({.name = fmt::format("model.layers.{}.{}", layer, theirs),
                       .parameter = fmt::format("blocks.{}.{}", layer, ours),
                       .begin = begin,
                       .rows = rows,
                       .expert = expert});
    };
    const auto add_gated = [&](const std::string& theirs, const char* gate_up, const char* down, int64_t F,
                               int64_t expert = -1) {
      add(theirs + "gate_proj.weight", gate_up, 0, F, expert);
      add(theirs + "up_proj.weight", gate_up, F, F, expert);
      add(theirs + "down_proj.weight", down, 0, -1, expert);
    };
    add("input_layernorm.weight", "attention_norm");
    add("self_attn.q_proj.weight", "qkv", 0, Q);
    add("self_attn.k_proj.weight", "qkv", Q, K);
    add("self_attn.v_proj.weight", "qkv", Q + K, K);
    if (config.has_qkv_bias()) {
      add("self_attn.q_proj.bias", "qkv_bias", 0, Q);
      add("self_attn.k_proj.bias", "qkv_bias", Q, K);
      add("self_attn.v_proj.bias", "qkv_bias", Q + K, K);
    }
    if (config.has_qk_norm()) {
      add("self_attn.q_norm.weight", "q_norm");
      add("self_attn.k_norm.weight", "k_norm");
    }
    add("self_attn.o_proj.weight", "out");
    add("post_attention_layernorm.weight", "ffn_norm");
    if (!config.has_experts()) {
      add_gated("mlp.", "gate_up", "down", config.ffn);
    } else {
      add("mlp.gate.weight", "router");
      if (there("model.layers.0.mlp.experts.gate_up_proj")) {
        add("mlp.experts.gate_up_proj", "expert_gate_up");
        add("mlp.experts.down_proj", "expert_down");
      } else {
        for (int64_t e = 0; e < config.experts; ++e)
          add_gated(fmt::format("mlp.experts.{}.", e), "expert_gate_up", "expert_down", config.expert_ffn, e);
      }
    }
  }
  slots.push_back({.name = "model.norm.weight", .parameter = "final_norm"});
  return slots;
}

}  // namespace

HuggingFaceLayout llama_layout(const std::string& architecture) {
  return {.architecture = architecture,
          .prefix = "model.",
          .read = read_llama,
          .write = write_llama,
          .slots = llama_slots};
}

}  // namespace tightloop
