#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/choice.h"
#include "core/io/gguf.h"
#include "model/language_model.h"

namespace tightloop {

/// What the matrices of a GGUF file are stored as. Vectors and norms are fp32 in all of them.
enum class GgufWeights { kFp32, kBf16, kFp16, kQ8_0 };
template <>
inline constexpr auto kChoices<GgufWeights> = std::to_array<Choice<GgufWeights>>({
    {GgufWeights::kFp32, "fp32"},
    {GgufWeights::kBf16, "bf16"},
    {GgufWeights::kFp16, "fp16"},
    {GgufWeights::kQ8_0, "q8_0", "GGUF alone: blocks of 32 whole numbers of 8 bits and a scale"},
});

/// What a GGUF file says about its model.
struct GgufModel {
  ModelConfig config;  // all sizes set
  GgufWeights weights = GgufWeights::kFp32;
  std::string dtype;  // fp32, bf16, fp16: the narrowest that holds every tensor as it is
};

/// Reads the settings of llama, qwen2, qwen3, qwen3moe and gpt2. Another architecture, a setting that our
/// families lack, and tensors of other types than F32, F16, BF16 and Q8_0 are checkpoint errors.
GgufModel read_gguf_model(const GgufFile& file);

/// Copies a file's tensors into a model of the same sizes, any device and dtype. One that is missing,
/// unknown, of another shape or not finite is a checkpoint error that names it.
void import_gguf_weights(const GgufFile& file, LanguageModel& model);

/// Why llama.cpp could not run such a model, as a usage error.
void require_gguf_layout(const ModelConfig& config);

/// The settings of the architecture, to be written.
void add_gguf_settings(const ModelConfig& config, GgufWeights weights, GgufMetadata& metadata);
/// Writes a file of these settings and a model's weights, whole or not at all.
void export_gguf_weights(const LanguageModel& model, GgufWeights weights, const GgufMetadata& metadata,
                         const std::filesystem::path& path);

// Blocks of Q8_0, as ggml's reference rounds them: 32 values share the scale max|x| / 127 in fp16, and each
// is x over the unrounded scale, halves away from 0. `count` is a multiple of 32.
struct Q8Block {
  uint16_t scale;
  int8_t values[32];
};
static_assert(sizeof(Q8Block) == 34);
void quantize_q8_0(const float* values, int64_t count, Q8Block* blocks);
void dequantize_q8_0(const char* blocks, int64_t count, float* values);

}  // namespace tightloop
