#include <fmt/format.h>

#include "model/files/gguf_layout.h"
#include "model/files/gguf_settings.h"
#include "model/files/huggingface_settings.h"

namespace tightloop {

namespace {

void read_gpt2_gguf(GgufSettings& settings, ModelConfig& config) {
  config.context = settings.size("context_length");
  config.width = settings.size("embedding_length");
  config.layers = settings.size("block_count");
  config.ffn = settings.size("feed_forward_length", 4 * config.width);
  config.heads = config.kv_heads = settings.size("attention.head_count");
  config.norm_eps = settings.number("attention.layer_norm_epsilon", 1e-5, kSmall, 1);
  settings.only("attention.head_count_kv", static_cast<double>(config.heads));
  settings.only("attention.causal", 1);
}

void write_gpt2_gguf(const ModelConfig& config, GgufMetadata& metadata) {
  const auto add = [&](const char* key, int64_t number) {
    metadata.add(std::string("gpt2.") + key, GgufValue::of(static_cast<uint32_t>(number)));
  };
  add("context_length", config.context);
  add("embedding_length", config.width);
  add("block_count", config.layers);
  add("feed_forward_length", config.ffn);
  add("attention.head_count", config.heads);
  metadata.add("gpt2.attention.layer_norm_epsilon", GgufValue::of(static_cast<float>(config.norm_eps)));
}

std::vector<GgufSlot> gpt2_gguf_slots(const ModelConfig& config) {
  std::vector<GgufSlot> slots{{.name = "token_embd.weight", .parameter = "embedding"},
                              {.name = "position_embd.weight", .parameter = "positions", .fp32 = true}};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto add = [&](const std::string& theirs, const std::string& ours) {
      slots.push_back({.name = fmt::format("blk.{}.{}.weight", layer, theirs),
                       .parameter = fmt::format("blocks.{}.{}", layer, ours)});
      slots.push_back({.name = fmt::format("blk.{}.{}.bias", layer, theirs),
                       .parameter = fmt::format("blocks.{}.{}_bias", layer, ours)});
    };
    add("attn_norm", "attention_norm"), add("attn_qkv", "qkv"), add("attn_output", "out");
    add("ffn_norm", "ffn_norm"), add("ffn_up", "up"), add("ffn_down", "down");
  }
  slots.push_back({.name = "output_norm.weight", .parameter = "final_norm"});
  slots.push_back({.name = "output_norm.bias", .parameter = "final_norm_bias"});
  return slots;
}

const AddGguf kAddGpt2Gguf{{.family = "gpt2",
                            .architecture = "gpt2",
                            .read = read_gpt2_gguf,
                            .write = write_gpt2_gguf,
                            .slots = gpt2_gguf_slots}};

}  // namespace

}  // namespace tightloop
