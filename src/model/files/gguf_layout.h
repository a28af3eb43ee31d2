#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/io/gguf.h"
#include "model/model_config.h"

namespace tightloop {

class GgufSettings;

/// A tensor of a GGUF file, and which part of which parameter of ours it is.
struct GgufSlot {
  std::string name, parameter;
  int64_t begin = 0, rows = -1;  // of ours: of the last dimension but one, or of a vector; -1: all of them
  // Not 0: the rows are so many heads, each with ggml's order for RoPE: what we turn with each other (row i
  // of the first half and of the second) are neighbours there.
  int64_t paired_heads = 0;
  bool fp32 = false;  // whatever the type of the others
};

/// How llama.cpp writes a family down.
struct GgufLayout {
  std::string family, architecture;  // ours and theirs
  /// Reads the settings behind "ARCHITECTURE." into ours, whose family is set.
  void (*read)(GgufSettings& settings, ModelConfig& config) = nullptr;
  /// The same settings, to be written; a usage error where llama.cpp would compute something else.
  void (*write)(const ModelConfig& config, GgufMetadata& metadata) = nullptr;
  /// All but the head.
  std::vector<GgufSlot> (*slots)(const ModelConfig& config) = nullptr;
  /// Vectors that follow from the settings; null: none.
  std::vector<std::pair<std::string, std::vector<float>>> (*computed)(const ModelConfig& config) = nullptr;
};

/// Null where llama.cpp has no such family.
const GgufLayout* gguf_layout_of(const ModelConfig& config);
/// Null where we have no family of this architecture.
const GgufLayout* gguf_layout_with(const std::string& architecture);
/// All architectures, as in "gpt2, llama".
std::string gguf_architectures();

/// The line that makes a layout known, at namespace scope: const AddGguf kAddName{{.family = ...}};
struct AddGguf {
  explicit AddGguf(GgufLayout layout);
};

}  // namespace tightloop
