#include "model/files/huggingface.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include <nlohmann/json.hpp>

#include "core/files.h"
#include "model/files/safetensors.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;
using Json = nlohmann::json;

ModelConfig small(const std::string& family) {
  ModelConfig config;
  config.family = family, config.layers = 2, config.width = 32, config.heads = 4, config.context = 64;
  config.kv_heads = family == "gpt2" ? 4 : 2;
  config.ffn = 48, config.expert_ffn = 16, config.experts = 3, config.experts_per_token = 2;
  config.tie_embeddings = family == "gpt2" || family == "qwen2";
  if (family.starts_with("qwen3")) config.head_size = 16;
  config.resolve(50, 0);
  return config;
}

const std::vector<std::string> kFamilies{"gpt2", "llama", "qwen2", "qwen3", "qwen3_moe", "nanochat"};

std::unique_ptr<LanguageModel> random_model(const ModelConfig& config, uint64_t seed) {
  auto model = make_model(config, seed);
  c10::NoGradGuard no_grad;  // norms and biases too, so that a swap shows
  for (const auto& parameter : model->parameters().all())
    parameter.value.detach().copy_(at::randn(parameter.value.sizes()).to(at::kBFloat16));
  return model;
}

Json read_json(const fs::path& path) { return Json::parse(read_file(path)); }

TEST(HuggingFace, WhatIsExportedIsImportedToTheBit) {
  for (const auto& family : kFamilies) {
    const TempFolder folder;
    const auto model = random_model(small(family), 1);
    export_weights(*model, at::kBFloat16, {.begin = -1, .end = 7}, folder.path());
    const auto read = read_hugging_face(folder.path());
    EXPECT_EQ(read.dtype, "bf16");
    EXPECT_EQ(read.config.family, family);
    auto copy = make_model(read.config, 2);
    import_weights(folder.path(), *copy);
    for (const auto& parameter : model->parameters().all())
      EXPECT_TRUE(at::equal(parameter.value, copy->parameters().find(parameter.name)->value))
          << family << " " << parameter.name;
    const auto ids = at::arange(24).reshape({2, 12});
    const auto logits = [&](LanguageModel& one) { return one.logits(one.forward(ids).hidden_BTD); };
    EXPECT_TRUE(at::equal(logits(*model), logits(*copy))) << family;
    const TempFolder second;
    export_weights(*copy, at::kBFloat16, {.begin = -1, .end = 7}, second.path());
    for (const char* file : {"model.safetensors", "config.json", "generation_config.json"})
      EXPECT_EQ(read_file(folder / file), read_file(second / file)) << family << " " << file;
    EXPECT_EQ(read_json(folder / "generation_config.json"), Json::parse(R"({"eos_token_id": [7]})"));
  }
}

TEST(HuggingFace, ShardsHoldNoMoreThanAskedAndComeBack) {
  const TempFolder folder;
  const auto model = random_model(small("qwen3"), 1);
  export_weights(*model, at::kFloat, {}, folder.path(), 20'000);
  EXPECT_FALSE(fs::exists(folder / "model.safetensors"));
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    if (entry.path().extension() != ".safetensors") continue;
    ++files;
    EXPECT_LT(entry.file_size(), 22'000u);
  }
  EXPECT_GT(files, 2u);
  auto copy = make_model(read_hugging_face(folder.path()).config, 2);
  import_weights(folder.path(), *copy);
  for (const auto& parameter : model->parameters().all())
    EXPECT_TRUE(at::equal(parameter.value, copy->parameters().find(parameter.name)->value));
}

TEST(HuggingFace, StackedExpertsAreReadToo) {
  const TempFolder folder;
  const auto model = random_model(small("qwen3_moe"), 1);
  export_weights(*model, at::kFloat, {}, folder.path());
  auto tensors = read_safetensors(folder / "model.safetensors").tensors;
  NamedTensors fused;
  for (const auto& [name, tensor] : tensors)
    if (name.find(".experts.") == std::string::npos) fused.emplace_back(name, tensor.clone());
  for (const std::string layer : {"0", "1"}) {
    for (const std::string name : {"gate_up", "down"})
      fused.emplace_back("model.layers." + layer + ".mlp.experts." + name + "_proj",
                         model->parameters().find("blocks." + layer + ".expert_" + name)->value);
  }
  tensors.clear();
  write_safetensors(folder / "model.safetensors", fused);
  auto copy = make_model(read_hugging_face(folder.path()).config, 2);
  import_weights(folder.path(), *copy);
  for (const auto& parameter : model->parameters().all())
    EXPECT_TRUE(at::equal(parameter.value, copy->parameters().find(parameter.name)->value)) << parameter.name;
}

TEST(HuggingFace, BothSpellingsOfRotaryPositionsAreRead) {
  auto config = small("llama");
  config.rope_theta = 5e5, config.rope_scaling = RopeScaling::kLlama3, config.rope_factor = 32;
  const Json four = config_to_hugging_face(config, at::kFloat, {});
  Json five = four;
  five.erase("rope_theta");
  five["rope_parameters"] = five["rope_scaling"];
  five["rope_parameters"]["rope_theta"] = 5e5;
  five.erase("rope_scaling");
  for (const auto& json : {four, five}) {
    const auto read = config_from_hugging_face(json, "config.json");
    EXPECT_EQ(read.rope_theta, 5e5);
    EXPECT_EQ(read.rope_scaling, RopeScaling::kLlama3);
    EXPECT_EQ(read.rope_factor, 32);
    EXPECT_EQ(read.rope_original_context, 8192);
  }
  five["rope_parameters"]["rope_type"] = "yarn";
  EXPECT_NE(error_of(ExitCode::kCheckpoint, [&] { config_from_hugging_face(five, "f"); }).find("yarn"),
            std::string::npos);
}

TEST(HuggingFace, SettingsThatWeLackAreRefusedByName) {
  const auto refuse = [](const std::string& family, const std::string& key, const Json& value) {
    Json json = config_to_hugging_face(small(family), at::kFloat, {});
    json[key] = value;
    const auto message =
        error_of(ExitCode::kCheckpoint, [&] { config_from_hugging_face(json, "config.json"); });
    EXPECT_NE(message.find(key), std::string::npos) << message;
  };
  refuse("llama", "attention_bias", true);
  refuse("llama", "mlp_bias", true);
  refuse("llama", "hidden_act", "gelu");
  refuse("llama", "hidden_size", -32);
  refuse("llama", "hidden_size", "wide");
  refuse("llama", "num_hidden_layers", 2.5);
  refuse("llama", "model_type", "mamba");
  refuse("llama", "quantization_config", Json::object());
  for (const Json& bad : {Json(-1), Json(0), Json(1e300), Json("small")}) {
    refuse("llama", "rms_norm_eps", bad);
    refuse("llama", "rope_theta", bad);
    refuse("gpt2", "layer_norm_epsilon", bad);
  }
  refuse("gpt2", "resid_pdrop", -0.5);
  refuse("qwen3_moe", "router_aux_loss_coef", -1);
  refuse("llama", "eos_token_id", 1'000'000'000);
  refuse("llama", "eos_token_id", {1, 64});
  refuse("llama", "bos_token_id", -1);
  refuse("llama", "eos_token_id", "end");
  refuse("qwen3", "attention_bias", true);
  refuse("qwen3", "layer_types", {"full_attention", "sliding_attention"});
  refuse("qwen3_moe", "decoder_sparse_step", 2);
  refuse("qwen3_moe", "mlp_only_layers", {1});
  refuse("gpt2", "activation_function", "relu");
  refuse("gpt2", "attn_pdrop", 0.3);
  refuse("gpt2", "scale_attn_by_inverse_layer_idx", true);
  Json windows = config_to_hugging_face(small("qwen2"), at::kFloat, {});
  windows["use_sliding_window"] = true, windows["sliding_window"] = 16, windows["max_window_layers"] = 1;
  error_of(ExitCode::kCheckpoint, [&] { config_from_hugging_face(windows, "config.json"); });
  windows["max_window_layers"] = 2;  // from the third layer on: none
  EXPECT_EQ(config_from_hugging_face(windows, "config.json").layers, 2);
}

TEST(HuggingFace, ANanochatExportOfOldIsReadToo) {
  const auto config = small("nanochat");
  Json json = config_to_hugging_face(config, at::kFloat, {});
  EXPECT_EQ(json["tightloop"]["window_pattern"], "SSSL");
  for (auto& value : json["tightloop"]) value = value.dump();  // "\"SSSL\"", "2", "true"
  EXPECT_EQ(config_from_hugging_face(json, "config.json").window_pattern, "SSSL");
  EXPECT_EQ(config_from_hugging_face(json, "config.json").layers, config.layers);
  json["tightloop"]["layers"] = -1;
  const auto message =
      error_of(ExitCode::kCheckpoint, [&] { config_from_hugging_face(json, "config.json"); });
  EXPECT_NE(message.find("layers"), std::string::npos) << message;
}

TEST(HuggingFace, SizesAreComparedWithTheFilesBeforeAModelIsMade) {
  for (const auto& [family, key] :
       std::vector<std::pair<std::string, std::string>>{{"llama", "hidden_size"},
                                                        {"llama", "vocab_size"},
                                                        {"llama", "intermediate_size"},
                                                        {"llama", "num_hidden_layers"},
                                                        {"qwen3_moe", "num_experts"},
                                                        {"qwen3_moe", "moe_intermediate_size"},
                                                        {"gpt2", "n_positions"},
                                                        {"gpt2", "n_inner"}}) {
    const TempFolder folder;
    const auto model = random_model(small(family), 1);
    export_weights(*model, at::kFloat, {}, folder.path());
    Json json = read_json(folder / "config.json");
    json[key] = 1 << 24;
    write_file_whole(folder / "config.json", json.dump());
    const auto message = error_of(ExitCode::kCheckpoint, [&] { read_hugging_face(folder.path()); });
    EXPECT_NE(message.find("config.json"), std::string::npos) << key << ": " << message;
  }
}

TEST(HuggingFace, TensorsThatDoNotFitAreNamedWithBothShapes) {
  const TempFolder folder;
  const auto config = small("llama");
  const auto model = random_model(config, 1);
  export_weights(*model, at::kFloat, {}, folder.path());
  NamedTensors good;
  for (const auto& [name, tensor] : read_safetensors(folder / "model.safetensors").tensors)
    good.emplace_back(name, tensor.clone());
  const auto refuse = [&](const NamedTensors& tensors) {
    write_safetensors(folder / "model.safetensors", tensors);
    auto copy = make_model(config, 2);
    return error_of(ExitCode::kCheckpoint, [&] { import_weights(folder.path(), *copy); });
  };
  const auto change = [&](const std::string& name, const at::Tensor& value) {
    auto tensors = good;
    for (auto& [key, tensor] : tensors)
      if (key == name) tensor = value;
    return refuse(tensors);
  };
  const std::string up = "model.layers.1.mlp.up_proj.weight";
  const auto message = change(up, at::ones({47, 32}));
  for (const std::string& part :
       {up, std::string("[47, 32]"), std::string("[48, 32]"), std::string("model.safetensors")})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    auto value = at::ones({48, 32});
    value[47][31] = bad;
    const auto sentence = change(up, value);
    EXPECT_NE(sentence.find(up), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("NaN"), std::string::npos) << sentence;
  }
  EXPECT_NE(change(up, at::ones({48, 32}).to(at::kLong)).find("dtype"), std::string::npos);
  auto fewer = good;
  std::erase_if(fewer, [&](const auto& entry) { return entry.first == up; });
  EXPECT_NE(refuse(fewer).find(up), std::string::npos);
  auto more = good;
  more.emplace_back("model.layers.0.self_attn.q_proj.bias", at::ones({32}));
  EXPECT_NE(refuse(more).find("q_proj.bias"), std::string::npos);
  more = good;  // computed from the sizes: older files hold it
  more.emplace_back("model.layers.0.self_attn.rotary_emb.inv_freq", at::ones({4}));
  write_safetensors(folder / "model.safetensors", more);
  import_weights(folder.path(), *make_model(config, 2));
}

TEST(HuggingFace, ATiedHeadMayStandInTheFileIfItIsTheEmbedding) {
  const TempFolder folder;
  const auto model = random_model(small("qwen2"), 1);
  export_weights(*model, at::kFloat, {}, folder.path());
  NamedTensors tensors;
  for (const auto& [name, tensor] : read_safetensors(folder / "model.safetensors").tensors)
    tensors.emplace_back(name, tensor.clone());
  tensors.emplace_back("lm_head.weight", model->parameters().find("embedding")->value.detach().clone());
  write_safetensors(folder / "model.safetensors", tensors);
  auto copy = make_model(model->config(), 2);
  import_weights(folder.path(), *copy);
  tensors.back().second[0][0] += 1;
  write_safetensors(folder / "model.safetensors", tensors);
  EXPECT_NE(error_of(ExitCode::kCheckpoint, [&] { import_weights(folder.path(), *copy); }).find("ties"),
            std::string::npos);
}

TEST(HuggingFace, BareDecodersLackAPrefix) {
  const TempFolder folder;
  const auto model = random_model(small("gpt2"), 1);
  export_weights(*model, at::kFloat, {}, folder.path());
  NamedTensors bare;
  for (const auto& [name, tensor] : read_safetensors(folder / "model.safetensors").tensors)
    bare.emplace_back(name.substr(std::string("transformer.").size()), tensor.clone());
  bare.emplace_back("h.0.attn.bias", at::ones({1, 1, 64, 64}));
  write_safetensors(folder / "model.safetensors", bare);
  auto copy = make_model(model->config(), 2);
  import_weights(folder.path(), *copy);
  EXPECT_TRUE(at::equal(model->parameters().find("blocks.1.qkv")->value,
                        copy->parameters().find("blocks.1.qkv")->value));
}

}  // namespace
}  // namespace tightloop
