#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace tightloop {

class HuggingFaceSettings;

/// A tensor of theirs, and which part of which parameter of ours it is.
struct HuggingFaceSlot {
  std::string name, parameter;
  int64_t begin = 0, rows = -1;  // of ours; -1: all of them
  int64_t expert = -1;           // of a stack, this one
  bool transposed = false;       // theirs is (in, out)
};

/// How transformers writes a family down. Left empty, for a family that it does not have: our own settings
/// and names, under the type "tightloop_FAMILY".
struct HuggingFaceLayout {
  std::string architecture{};  // their class; the family's name is their model_type
  std::string prefix{};        // what names lack where a decoder was saved without its head
  /// Reads their settings into ours, whose family is set.
  void (*read)(HuggingFaceSettings& settings, ModelConfig& config) = nullptr;
  void (*write)(const ModelConfig& config, nlohmann::ordered_json& json) = nullptr;
  /// All but the head. `there` tells whether the files to be read have a tensor.
  using There = std::function<bool(const std::string& name)>;
  std::vector<HuggingFaceSlot> (*slots)(const ModelConfig& config, const There& there) = nullptr;
  std::string none{};  // why a family cannot be written at all

  bool own() const { return slots == nullptr; }
};

}  // namespace tightloop
