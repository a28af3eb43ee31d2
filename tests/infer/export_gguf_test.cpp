// From one GGUF file to another: what llama.cpp makes of texts stays as it was.
#include "infer/export/export_gguf.h"

#include "model/model.h"
#include "support.h"
#include "tokenizer/byte_fallback.h"
#include "tokenizer/gguf_tokenizer.h"

namespace tightloop {
namespace {

using testing::TempFolder;

/// A model with a SentencePiece tokenizer as others write it, with some metadata in front.
void write_foreign_file(const fs::path& path, const std::string& type, GgufMetadata metadata) {
  const auto tokenizer = testing::byte_fallback_model(type, "<x>,<y>");
  ModelConfig config;
  config.family = "llama", config.layers = 1, config.width = 32, config.heads = 2, config.context = 64;
  config.resolve(tokenizer->vocab_size(), 0);
  metadata.add("general.architecture", GgufValue::of("llama"));
  add_gguf_settings(config, GgufWeights::kFp32, metadata);
  add_gguf_tokenizer(*tokenizer, config.vocab_size, {.begin = 1, .end = 2}, false, metadata);
  export_gguf_weights(*make_model(config, 1), GgufWeights::kFp32, metadata, path);
}

GgufMetadata exported_metadata(const std::string& type, const GgufMetadata& metadata) {
  const TempFolder folder;
  write_foreign_file(folder / "a.gguf", type, metadata);
  export_gguf(folder / "a.gguf", folder / "b.gguf", {});
  return GgufFile(folder / "b.gguf").metadata();
}

bool flag_in(const GgufMetadata& metadata, const std::string& name) {
  const GgufValue* value = metadata.find("tokenizer.ggml." + name);
  return value && value->flag().value_or(false);
}

TEST(ExportGguf, WhatStandsAroundEachTextIsKept) {
  GgufMetadata both;
  both.add("tokenizer.ggml.add_bos_token", GgufValue::of(true));
  both.add("tokenizer.ggml.add_eos_token", GgufValue::of(true));
  auto kept = exported_metadata("bpe", both);
  EXPECT_TRUE(flag_in(kept, "add_bos_token"));
  EXPECT_TRUE(flag_in(kept, "add_eos_token"));
  kept = exported_metadata("bpe", {});  // which says: neither
  EXPECT_FALSE(flag_in(kept, "add_bos_token"));
  EXPECT_FALSE(flag_in(kept, "add_eos_token"));
}

TEST(ExportGguf, TokensThatOnlyLlamaCppUsesAreKept) {
  GgufMetadata more;
  more.add("tokenizer.ggml.fim_pre_token_id", GgufValue::of(uint32_t{5}));
  more.add("general.license", GgufValue::of("mit"));
  const auto kept = exported_metadata("unigram", more);
  ASSERT_TRUE(kept.find("tokenizer.ggml.fim_pre_token_id"));
  EXPECT_EQ(kept.find("tokenizer.ggml.fim_pre_token_id")->integer(), 5);
  EXPECT_TRUE(kept.find("general.license"));
}

}  // namespace
}  // namespace tightloop
