#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "model/files/gguf_layout.h"
#include "model/files/gguf_settings.h"
#include "model/files/huggingface_settings.h"
#include "model/parts/rotary.h"

namespace tightloop {

namespace {

constexpr const char* kRopeFactors = "rope_freqs.weight";

/// llama.cpp turns neighbours of llama's heads, and halves of qwen's, as we do of all.
bool turns_neighbours(const ModelConfig& config) { return !config.has_qkv_bias() && !config.has_qk_norm(); }

/// What each frequency is divided by.
std::vector<float> rope_factors(const ModelConfig& config) {
  ModelConfig plain = config;
  plain.rope_scaling = RopeScaling::kNone;
  const auto before = rotary_frequencies(plain), after = rotary_frequencies(config);
  std::vector<float> factors;
  for (size_t i = 0; i < before.size(); ++i) factors.push_back(static_cast<float>(before[i] / after[i]));
  return factors;
}

std::vector<std::pair<std::string, std::vector<float>>> computed_tensors(const ModelConfig& config) {
  if (config.rope_scaling == RopeScaling::kNone) return {};
  return {{kRopeFactors, rope_factors(config)}};
}

/// llama.cpp keeps the factors alone. Ours are beside them; of other files they are those of Llama 3, or none
/// that we know.
void read_rope_factors(GgufSettings& settings, ModelConfig& config) {
  const GgufTensor* tensor = settings.file().find(kRopeFactors);
  if (!tensor) return;
  const auto wrong = [&](const std::string& what) {
    return checkpoint_error("'{}': tensor '{}' {}.", settings.path(), kRopeFactors, what);
  };
  if (tensor->type->name != "F32" || tensor->sizes != std::vector<int64_t>{config.head_size / 2})
    throw wrong(fmt::format("is not {} values of type F32", config.head_size / 2));
  std::vector<float> factors(static_cast<size_t>(tensor->values()));
  std::memcpy(factors.data(), settings.file().data(*tensor), factors.size() * sizeof(float));
  GgufSettings ours(settings.file(), "tightloop.rope");
  config.rope_scaling = RopeScaling::kLlama3;
  config.rope_factor = ours.number("factor", std::clamp<double>(std::ranges::max(factors), 1, 1e6), 1, 1e6);
  config.rope_low_freq = ours.number("low_freq_factor", 1, kSmall, 1e6);
  config.rope_high_freq = ours.number("high_freq_factor", 4, kSmall, 1e6);
  config.rope_original_context = ours.size("original_context", 8192);
  if (config.rope_low_freq >= config.rope_high_freq)
    throw wrong("has settings beside it that do not fit together");
  const auto expected = rope_factors(config);
  for (size_t i = 0; i < factors.size(); ++i)
    if (!(std::abs(factors[i] - expected[i]) <= 1e-4f * expected[i]))
      throw wrong(
          fmt::format("is not that of Llama 3's RoPE scaling (factor {}, original context {}), the only one "
                      "that is supported",
                      config.rope_factor, config.rope_original_context));
}

void read_llama_gguf(GgufSettings& settings, ModelConfig& config) {
  config.context = settings.size("context_length");
  config.width = settings.size("embedding_length");
  config.layers = settings.size("block_count");
  config.ffn = settings.size("feed_forward_length");
  config.heads = settings.size("attention.head_count");
  config.kv_heads = settings.size("attention.head_count_kv", config.heads);
  config.norm_eps = settings.number("attention.layer_norm_rms_epsilon", 1e-6, kSmall, 1);
  config.rope_theta = settings.number("rope.freq_base", 10000, kSmall, kLarge);
  if (settings.has("attention.key_length")) config.head_size = settings.size("attention.key_length");
  if (config.head_size == 0 && config.width % config.heads == 0)
    config.head_size = config.width / config.heads;
  settings.only("attention.value_length", static_cast<double>(config.head_size));
  settings.only("rope.dimension_count", static_cast<double>(config.head_size));
  settings.only("attention.causal", 1);
  settings.only("attention.sliding_window", 0);
  settings.only("rope.scaling.factor", 1);
  if (const auto scaling = settings.text("rope.scaling.type", "none"); scaling != "none")
    throw checkpoint_error("'{}': RoPE scaling of type {} is not supported.", settings.path(), scaling);
  if (config.head_size % 2 == 0 && config.head_size > 0) read_rope_factors(settings, config);
  if (!config.has_experts()) return settings.only("expert_count", 0);
  config.experts = settings.size("expert_count");
  config.experts_per_token = settings.size("expert_used_count");
  config.expert_ffn = settings.size("expert_feed_forward_length");
  config.norm_topk = true;
  settings.only("expert_weights_scale", 1);
}

void write_llama_gguf(const ModelConfig& config, GgufMetadata& metadata) {
  const std::string& architecture = gguf_layout_of(config)->architecture;
  if (config.rope_scaling != RopeScaling::kNone && !turns_neighbours(config))
    throw usage_error(
        "llama.cpp reads llama3 RoPE scaling of llama models alone, and this is a {} model: it cannot be "
        "exported as GGUF.",
        config.family);
  if (config.has_qkv_bias() && config.heads * config.head_size != config.width)
    throw usage_error(
        "llama.cpp wants {} models whose heads together are as wide as the model, and here {} heads of {} "
        "are not {}.",
        config.family, config.heads, config.head_size, config.width);
  if (config.has_experts() && !config.norm_topk)
    throw usage_error(
        "llama.cpp always normalizes the weights of the chosen experts, and model.norm_topk is false: this "
        "model cannot be exported as GGUF.");
  const auto add = [&](const char* key, int64_t number) {
    metadata.add(architecture + "." + key, GgufValue::of(static_cast<uint32_t>(number)));
  };
  const auto add_number = [&](const char* key, double number) {
    metadata.add(architecture + "." + key, GgufValue::of(static_cast<float>(number)));
  };
  add("context_length", config.context);
  add("embedding_length", config.width);
  add("block_count", config.layers);
  add("feed_forward_length", config.ffn);
  add("attention.head_count", config.heads);
  add("attention.head_count_kv", config.kv_heads);
  add("attention.key_length", config.head_size);
  add("attention.value_length", config.head_size);
  add_number("attention.layer_norm_rms_epsilon", config.norm_eps);
  add("rope.dimension_count", config.head_size);
  add_number("rope.freq_base", config.rope_theta);
  if (config.has_experts()) {
    add("expert_count", config.experts);
    add("expert_used_count", config.experts_per_token);
    add("expert_feed_forward_length", config.expert_ffn);
  }
  if (config.rope_scaling == RopeScaling::kLlama3) {  // for ourselves: llama.cpp reads the tensor
    metadata.add("tightloop.rope.factor", GgufValue::of(config.rope_factor));
    metadata.add("tightloop.rope.low_freq_factor", GgufValue::of(config.rope_low_freq));
    metadata.add("tightloop.rope.high_freq_factor", GgufValue::of(config.rope_high_freq));
    metadata.add("tightloop.rope.original_context",
                 GgufValue::of(static_cast<uint32_t>(config.rope_original_context)));
  }
}

std::vector<GgufSlot> llama_gguf_slots(const ModelConfig& config) {
  std::vector<GgufSlot> slots{{.name = "token_embd.weight", .parameter = "embedding"}};
  const int64_t Q = config.heads * config.head_size, K = config.kv_heads * config.head_size;
  const bool pairs = turns_neighbours(config);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto add = [&](const char* theirs, const char* ours, int64_t begin = 0, int64_t rows = -1,
                         int64_t paired_heads = 0) {
      slots.push_back({.name = fmt::format("blk.{}.{}", layer, theirs),
                       .parameter = fmt::format("blocks.{}.{}", layer, ours),
                       .begin = begin,
                       .rows = rows,
                       .paired_heads = paired_heads});
    };
    add("attn_norm.weight", "attention_norm");
    add("attn_q.weight", "qkv", 0, Q, pairs ? config.heads : 0);
    add("attn_k.weight", "qkv", Q, K, pairs ? config.kv_heads : 0);
    add("attn_v.weight", "qkv", Q + K, K);
    if (config.has_qkv_bias()) {
      add("attn_q.bias", "qkv_bias", 0, Q);
      add("attn_k.bias", "qkv_bias", Q, K);
      add("attn_v.bias", "qkv_bias", Q + K, K);
    }
    if (config.has_qk_norm()) {
      add("attn_q_norm.weight", "q_norm");
      add("attn_k_norm.weight", "k_norm");
    }
    add("attn_output.weight", "out");
    add("ffn_norm.weight", "ffn_norm");
    if (config.has_experts()) {
      const int64_t X = config.expert_ffn;
      add("ffn_gate_inp.weight", "router");
      slots.back().fp32 = true;
      add("ffn_gate_exps.weight", "expert_gate_up", 0, X);
      add("ffn_up_exps.weight", "expert_gate_up", X, X);
      add("ffn_down_exps.weight", "expert_down");
    } else {
      add("ffn_gate.weight", "gate_up", 0, config.ffn);
      add("ffn_up.weight", "gate_up", config.ffn, config.ffn);
      add("ffn_down.weight", "down");
    }
  }
  slots.push_back({.name = "output_norm.weight", .parameter = "final_norm"});
  return slots;
}

GgufLayout llama_gguf(const char* family, const char* architecture) {
  return {.family = family,
          .architecture = architecture,
          .read = read_llama_gguf,
          .write = write_llama_gguf,
          .slots = llama_gguf_slots,
          .computed = computed_tensors};
}

const AddGguf kAddLlamaGguf{llama_gguf("llama", "llama")};
const AddGguf kAddQwen2Gguf{llama_gguf("qwen2", "qwen2")};
const AddGguf kAddQwen3Gguf{llama_gguf("qwen3", "qwen3")};
const AddGguf kAddQwen3MoeGguf{llama_gguf("qwen3_moe", "qwen3moe")};

}  // namespace

}  // namespace tightloop
