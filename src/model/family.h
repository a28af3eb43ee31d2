#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "model/activation_memory.h"
#include "model/files/huggingface_layout.h"
#include "model/model.h"

namespace tightloop {

/// What a family has, as far as others must know.
struct FamilyTraits {
  bool translates = false;         // an encoder and a decoder, trained on pairs of texts
  bool experts = false;            // in place of the feed-forward layers
  bool qkv_bias = false;           // llama's class: biases of queries, keys and values
  bool qk_norm = false;            // llama's class: norms of queries and keys
  bool learned_positions = false;  // nothing is longer than model.context
  bool depth = false;              // model.depth sets its sizes
  bool paged = false;              // its forward passes read Pass::paged
  bool previous_token = false;     // and there PagedTokens::previous_N1
  bool own_init = false;           // weights start without regard to model.init_std
};

/// A family of models: all that the program knows of it. Its files are those of a folder in families/.
struct Family {
  std::string name;  // model.family
  std::unique_ptr<Model> (*make)(const ModelConfig& config, Seed seed) = nullptr;
  FamilyTraits has{};
  std::vector<Preset> presets{};  // model.preset; model.family need not be among their values
  /// Fills in what 0 stands for and is not the same for all families, and refuses what this one lacks. Sizes
  /// that it leaves at 0 are filled in afterwards.
  void (*defaults)(ModelConfig& config) = nullptr;
  /// Refuses sizes, all of them set, that do not fit together.
  void (*check)(const ModelConfig& config) = nullptr;
  /// ModelConfig::window(); without it queries see all that came before.
  int64_t (*window)(const ModelConfig& config, int64_t layer) = nullptr;
  /// activation_memory(); without it, an estimate from the shapes of the parameters.
  ActivationMemory (*activations)(const ModelConfig& config, const PassShape& shape) = nullptr;
  /// Without it, files have our own names.
  HuggingFaceLayout hugging_face{};
};

template <class AModel>
std::unique_ptr<Model> make_family(const ModelConfig& config, Seed seed) {
  return std::make_unique<AModel>(config, seed);
}

/// All families, by name.
const std::deque<Family>& families();
/// The one that the configuration names; a usage error where there is none.
const Family& family_of(const ModelConfig& config);
/// Names of the families that `has`, as in "gpt2 and llama".
std::string families_with(bool (*has)(const Family& family));

/// The line that makes a family known, at namespace scope: const AddFamily kAddName{{.name = ...}};
struct AddFamily {
  explicit AddFamily(Family family);
};

}  // namespace tightloop
