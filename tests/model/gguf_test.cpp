#include "model/files/gguf.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/files.h"
#include "fuzz.h"
#include "model/files/huggingface.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;

const std::vector<std::string> kGgufFamilies{"gpt2", "llama", "qwen2", "qwen3", "qwen3_moe"};

ModelConfig small_gguf(const std::string& family) {
  ModelConfig config;
  config.family = family, config.layers = 2, config.width = 64, config.heads = 4, config.context = 64;
  config.kv_heads = family == "gpt2" ? 4 : 2;
  config.ffn = 96, config.expert_ffn = 32, config.experts = 3, config.experts_per_token = 2;
  config.tie_embeddings = family == "gpt2" || family == "qwen2";
  config.norm_eps = 1e-5, config.rope_theta = 3e5;
  if (family.starts_with("qwen3")) config.head_size = 32;
  config.resolve(50, 0);
  return config;
}

std::unique_ptr<LanguageModel> random_gguf_model(const ModelConfig& config,
                                                 at::ScalarType dtype = at::kFloat) {
  auto model = make_model(config, 1);
  c10::NoGradGuard no_grad;  // norms and biases too, so that a swap shows
  for (const auto& parameter : model->parameters().all())
    parameter.value.detach().copy_(at::randn(parameter.value.sizes()).to(dtype));
  return model;
}

void write_model(const LanguageModel& model, GgufWeights weights, const fs::path& path) {
  GgufMetadata metadata;
  metadata.add("general.architecture",
               GgufValue::of(model.config().family == "qwen3_moe" ? "qwen3moe" : model.config().family));
  add_gguf_settings(model.config(), weights, metadata);
  export_gguf_weights(model, weights, metadata, path);
}

std::unique_ptr<LanguageModel> read_model(const fs::path& path) {
  const GgufFile file(path);
  auto model = make_model(read_gguf_model(file).config, 2);
  import_gguf_weights(file, *model);
  return model;
}

TEST(GgufModel, WhatIsExportedIsImportedToTheBitAndWrittenAgainToTheByte) {
  for (const auto& family : kGgufFamilies)
    for (const auto& [weights, name, help] : kChoices<GgufWeights>) {
      SCOPED_TRACE(family + " " + std::string(name));
      const TempFolder folder;
      const auto dtype = weights == GgufWeights::kBf16   ? at::kBFloat16
                         : weights == GgufWeights::kFp16 ? at::kHalf
                                                         : at::kFloat;
      const auto model = random_gguf_model(small_gguf(family), dtype);
      write_model(*model, weights, folder / "a.gguf");
      const GgufModel read = read_gguf_model(GgufFile(folder / "a.gguf"));
      EXPECT_EQ(read.weights, weights);
      EXPECT_EQ(read.dtype, weights == GgufWeights::kQ8_0 ? "fp32" : name);
      EXPECT_EQ(read.config.norm_eps, 1e-5);
      EXPECT_EQ(read.config.tie_embeddings, model->config().tie_embeddings);
      const auto copy = read_model(folder / "a.gguf");
      for (const auto& parameter : model->parameters().all()) {
        const auto& theirs = copy->parameters().find(parameter.name)->value;
        if (weights == GgufWeights::kQ8_0)
          EXPECT_LT((parameter.value - theirs).abs().max().item<double>(), 5.0 / 127 / 2 + 5.0 / 2048)
              << parameter.name;
        else
          EXPECT_TRUE(at::equal(parameter.value, theirs)) << parameter.name;
      }
      write_model(*copy, weights, folder / "b.gguf");
      EXPECT_EQ(read_file(folder / "a.gguf"), read_file(folder / "b.gguf"));
      if (weights == GgufWeights::kQ8_0) continue;
      const auto ids = at::arange(24).reshape({2, 12});
      const auto logits = [&](LanguageModel& one) { return one.logits(one.forward(ids).hidden_BTD); };
      EXPECT_TRUE(at::equal(logits(*model), logits(*copy)));
    }
}

TEST(GgufModel, VectorsNormsRoutersAndPositionsStayFp32) {
  for (const auto& family : kGgufFamilies) {
    const TempFolder folder;
    write_model(*random_gguf_model(small_gguf(family)), GgufWeights::kQ8_0, folder / "a.gguf");
    const GgufFile file(folder / "a.gguf");
    for (const GgufTensor& tensor : file.tensors()) {
      const bool kept = tensor.sizes.size() == 1 || tensor.name.find("ffn_gate_inp") != std::string::npos ||
                        tensor.name.starts_with("position_embd");
      EXPECT_EQ(tensor.type->name, kept ? "F32" : "Q8_0") << tensor.name;
    }
  }
}

TEST(GgufModel, RowsThatAreNoBlocksOfQ8AreFp16) {
  const TempFolder folder;
  ModelConfig config = small_gguf("llama");
  config.ffn = 80;
  write_model(*random_gguf_model(config), GgufWeights::kQ8_0, folder / "a.gguf");
  const GgufFile file(folder / "a.gguf");
  EXPECT_EQ(file.find("blk.0.ffn_down.weight")->type->name, "F16");
  EXPECT_EQ(file.find("blk.0.ffn_up.weight")->type->name, "Q8_0");
  EXPECT_EQ(read_gguf_model(file).weights, GgufWeights::kQ8_0);
}

TEST(GgufModel, BlocksOfQ8AreRoundedAsTheReferenceDoes) {
  std::vector<float> x(64);
  for (int i = 0; i < 32; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i - 16) * 0.5f;
  x[40] = 1e-7f;  // a scale below what fp16 holds
  Q8Block blocks[2];
  quantize_q8_0(x.data(), 64, blocks);
  EXPECT_EQ(blocks[0].scale, c10::Half(8.0f / 127).x);
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(blocks[0].values[i],
              static_cast<int8_t>(std::round(x[static_cast<size_t>(i)] * (1 / (8.0f / 127)))));
  EXPECT_EQ(blocks[1].values[8], 127);
  EXPECT_EQ(blocks[1].scale, 0) << "as the reference has it";
  std::vector<float> back(64);
  dequantize_q8_0(reinterpret_cast<const char*>(blocks), 64, back.data());
  EXPECT_EQ(back[0], -127 * static_cast<float>(c10::Half(8.0f / 127)));
  const float tiny[32] = {std::numeric_limits<float>::denorm_min()};
  quantize_q8_0(tiny, 32, blocks);  // whose scale has no inverse
  EXPECT_EQ(blocks[0].values[0], 0);
}

TEST(GgufModel, WhatQ8CannotHoldIsRefused) {
  const TempFolder folder;
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), 9e6f}) {
    const auto model = random_gguf_model(small_gguf("llama"));
    model->parameters().find("blocks.1.down")->value.detach()[3][5] = bad;
    const auto message =
        error_of(ExitCode::kCheckpoint, [&] { write_model(*model, GgufWeights::kQ8_0, folder / "a.gguf"); });
    EXPECT_NE(message.find("blk.1.ffn_down.weight"), std::string::npos) << message;
    EXPECT_TRUE(fs::is_empty(folder.path()));
  }
}

TEST(GgufModel, WhatFp16CannotHoldIsRefused) {
  const TempFolder folder;
  const auto model = random_gguf_model(small_gguf("qwen3"));
  {
    c10::NoGradGuard no_grad;
    model->parameters().find("blocks.1.down")->value.detach()[3][5] = 70000;
  }
  const auto message =
      error_of(ExitCode::kCheckpoint, [&] { write_model(*model, GgufWeights::kFp16, folder / "a.gguf"); });
  EXPECT_NE(message.find("blk.1.ffn_down.weight"), std::string::npos) << message;
  EXPECT_FALSE(fs::exists(folder / "a.gguf"));
  make_folder(folder / "hf");
  EXPECT_NE(
      error_of(ExitCode::kCheckpoint, [&] { export_weights(*model, at::kHalf, {}, folder / "hf", 1 << 30); })
          .find("65504"),
      std::string::npos);
  EXPECT_NO_THROW(write_model(*model, GgufWeights::kBf16, folder / "a.gguf"));
}

TEST(GgufModel, OneOfSeveralFilesIsNoModel) {
  const TempFolder folder;
  const auto model = random_gguf_model(small_gguf("llama"));
  GgufMetadata metadata;
  metadata.add("general.architecture", GgufValue::of("llama"));
  metadata.add("split.count", GgufValue::of(uint32_t{3}));
  add_gguf_settings(model->config(), GgufWeights::kFp32, metadata);
  export_gguf_weights(*model, GgufWeights::kFp32, metadata, folder / "a.gguf");
  const auto message = error_of(ExitCode::kCheckpoint, [&] { read_gguf_model(GgufFile(folder / "a.gguf")); });
  EXPECT_NE(message.find("one of 3 files"), std::string::npos) << message;
}

TEST(GgufModel, Llama3sRopeScalingIsKeptAndThatOfOthersRecognized) {
  const TempFolder folder;
  ModelConfig config = small_gguf("llama");
  config.rope_scaling = RopeScaling::kLlama3, config.rope_factor = 32, config.rope_original_context = 8192;
  const auto model = random_gguf_model(config);
  write_model(*model, GgufWeights::kFp32, folder / "a.gguf");
  const auto check = [&](const fs::path& path) {
    const ModelConfig read = read_gguf_model(GgufFile(path)).config;
    EXPECT_EQ(read.rope_scaling, RopeScaling::kLlama3);
    EXPECT_EQ(read.rope_factor, 32);
    EXPECT_EQ(read.rope_original_context, 8192);
    EXPECT_NO_THROW(read_model(path));
  };
  check(folder / "a.gguf");
  const GgufFile file(folder / "a.gguf");
  const auto rewritten = [&](const fs::path& path, float add) {  // by somebody who has the factors alone
    GgufMetadata metadata;
    for (const auto& [key, value] : file.metadata().entries())
      if (!key.starts_with("tightloop.")) metadata.add(key, value);
    write_gguf(path, metadata, file.tensors(), [&](size_t i, const PutBytes& put) {
      const GgufTensor& tensor = file.tensors()[i];
      std::string bytes(file.data(tensor), tensor.bytes());
      if (tensor.name == "rope_freqs.weight") {
        float first;
        std::memcpy(&first, bytes.data(), 4);
        first += add;
        std::memcpy(bytes.data(), &first, 4);
      }
      put(bytes.data(), bytes.size());
    });
  };
  rewritten(folder / "b.gguf", 0);
  check(folder / "b.gguf");
  rewritten(folder / "c.gguf", 1);
  EXPECT_NE(error_of(ExitCode::kCheckpoint, [&] { read_gguf_model(GgufFile(folder / "c.gguf")); })
                .find("rope_freqs.weight"),
            std::string::npos);
}

TEST(GgufModel, WhatLlamaCppWouldComputeOtherwiseIsNotWritten) {
  const TempFolder folder;
  const auto refuse = [&](ModelConfig config, const std::string& word) {
    const auto model = make_model(config, 1);
    const auto message =
        error_of(ExitCode::kUsage, [&] { write_model(*model, GgufWeights::kFp32, folder / "a.gguf"); });
    EXPECT_NE(message.find(word), std::string::npos) << message;
  };
  ModelConfig nanochat = small_gguf("llama");
  nanochat.family = "nanochat", nanochat.tie_embeddings = false, nanochat.layers = 1;
  nanochat.resolve(50, 64);
  refuse(nanochat, "--format hf");
  ModelConfig config = small_gguf("qwen3");
  config.rope_scaling = RopeScaling::kLlama3;
  refuse(config, "RoPE");
  config = small_gguf("qwen2");
  config.head_size = 32;
  refuse(config, "wide");
  config = small_gguf("qwen3_moe");
  config.norm_topk = false;
  refuse(config, "norm_topk");
  config = small_gguf("llama");
  config.softcap = 15;
  refuse(config, "softcap");
}

TEST(GgufModel, SettingsAndTensorsThatWeLackAreRefusedByName) {
  const TempFolder folder;
  write_model(*random_gguf_model(small_gguf("llama")), GgufWeights::kFp32, folder / "a.gguf");
  const GgufFile file(folder / "a.gguf");
  const auto refuse = [&](const std::string& key, std::optional<GgufValue> value, const std::string& word,
                          const std::string& tensor = "", const std::string& renamed = "") {
    GgufMetadata metadata;
    for (const auto& [name, old] : file.metadata().entries())
      if (name != key) metadata.add(name, old);
    if (value) metadata.add(key, *value);
    auto tensors = file.tensors();
    for (GgufTensor& one : tensors)
      if (one.name == tensor) one.name = renamed;
    write_gguf(folder / "bad.gguf", metadata, tensors, [&](size_t i, const PutBytes& put) {
      put(file.data(file.tensors()[i]), file.tensors()[i].bytes());
    });
    const auto message = error_of(ExitCode::kCheckpoint, [&] { read_model(folder / "bad.gguf"); });
    EXPECT_NE(message.find(word), std::string::npos) << message;
    EXPECT_NE(message.find("bad.gguf"), std::string::npos) << message;
  };
  refuse("general.architecture", {}, "general.architecture");
  refuse("general.architecture", GgufValue::of("mamba"), "mamba");
  refuse("llama.block_count", {}, "llama.block_count");
  refuse("llama.block_count", GgufValue::of("two"), "llama.block_count");
  refuse("llama.block_count", GgufValue::of(uint32_t{0}), "llama.block_count");
  refuse("llama.block_count", GgufValue::of(uint32_t{3}), "values or more");
  refuse("llama.block_count", GgufValue::of(uint32_t{1}), "blk.1");
  refuse("llama.block_count", GgufValue::of(uint32_t{10'000'000}), "values or more");
  refuse("llama.embedding_length", GgufValue::of(uint32_t{32}), "shape");
  refuse("llama.attention.head_count", GgufValue::of(uint32_t{3}), "heads");
  refuse("llama.attention.key_length", GgufValue::of(uint32_t{15}), "value_length");
  refuse("llama.attention.layer_norm_rms_epsilon", GgufValue::of(-1.0f), "epsilon");
  refuse("llama.rope.scaling.type", GgufValue::of("yarn"), "yarn");
  refuse("llama.attention.sliding_window", GgufValue::of(uint32_t{512}), "sliding_window");
  refuse("llama.expert_count", GgufValue::of(uint32_t{8}), "expert_count");
  refuse("llama.vocab_size", GgufValue::of(uint32_t{7}), "vocab_size");
  refuse("", {}, "token_embd.weight", "token_embd.weight", "other");
  refuse("", {}, "blk.0.attn_q.weight", "blk.0.attn_q.weight", "blk.0.attn_q.bias");
}

TEST(GgufModel, AWeightThatIsNotFiniteIsNamed) {
  const TempFolder folder;
  const auto model = random_gguf_model(small_gguf("llama"));
  model->parameters().find("blocks.0.out")->value.detach()[0][0] = std::nanf("");
  write_model(*model, GgufWeights::kFp32, folder / "a.gguf");
  EXPECT_NE(error_of(ExitCode::kCheckpoint, [&] { read_model(folder / "a.gguf"); })
                .find("blk.0.attn_output.weight"),
            std::string::npos);
}

TEST(GgufModel, AModelOfNoiseEndsInASentenceOrIsRead) {
  const TempFolder folder;
  std::vector<std::string> seeds;
  for (const auto& family : kGgufFamilies) {
    ModelConfig config = small_gguf(family);
    config.layers = 1;
    write_model(*random_gguf_model(config), GgufWeights::kQ8_0, folder / "seed");
    seeds.push_back(read_file(folder / "seed"));
    fs::remove(folder / "seed");
  }
  uint64_t whole = 0;
  testing::fuzz(seeds, testing::fuzz_runs(400),
                {"llama", "qwen3", std::string("\x08\0\0\0", 4), std::string(4, '\xff')},
                [&](std::string& bytes, Random&) {
                  testing::write_file(folder / "noise.gguf", bytes);
                  try {
                    read_model(folder / "noise.gguf");
                    ++whole;
                  } catch (const Error& error) {
                    EXPECT_EQ(error.code(), ExitCode::kCheckpoint) << error.what();
                  }
                });
  EXPECT_GT(whole, 0u);
}

}  // namespace
}  // namespace tightloop
