#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/io/json_depth.h"
#include "core/terminal/progress_line.h"
#include "model/family.h"
#include "model/files/huggingface.h"
#include "model/files/huggingface_generation.h"
#include "model/files/safetensors.h"
#include "model/least_values.h"

namespace tightloop {

namespace {

at::Tensor part_of(const at::Tensor& ours, const HuggingFaceSlot& slot) {
  auto part = slot.expert < 0 ? ours : ours.select(0, slot.expert);
  if (slot.rows >= 0) part = part.narrow(0, slot.begin, slot.rows);
  return slot.transposed ? part.t() : part;
}

std::vector<HuggingFaceSlot> layout_of(const LanguageModel& model, const HuggingFaceLayout::There& there) {
  const auto& config = model.config();
  const auto& layout = family_of(config).hugging_face;
  std::vector<HuggingFaceSlot> slots;
  if (layout.own()) {
    for (const auto& parameter : model.parameters().all())
      slots.push_back({.name = parameter.name, .parameter = parameter.name});
    return slots;
  }
  slots = layout.slots(config, there);
  if (!config.tie_embeddings) slots.push_back({.name = "lm_head.weight", .parameter = "head"});
  return slots;
}

/// Buffers that older files hold and that follow from the sizes.
bool is_computed(const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".attn.bias");
}

at::ScalarType common_dtype(const TensorFiles& files) {
  std::optional<at::ScalarType> common;
  for (const auto& [name, tensor] : files.tensors) {
    if (is_computed(name)) continue;
    const auto type = tensor.scalar_type();
    if (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf)
      throw checkpoint_error("'{}': tensor '{}' has dtype {}; F32, BF16 or F16 was expected.",
                             files.file_of.at(name).string(), name, c10::toString(type));
    common = common ? c10::promoteTypes(*common, type) : type;
  }
  return common.value_or(at::kFloat);
}

/// Before a model of these sizes is made: the files must have as many layers and values as config.json says.
void check_sizes(const ModelConfig& config, const TensorFiles& files, const fs::path& file) {
  double values = 0;
  for (const auto& [name, tensor] : files.tensors) {
    if (!is_computed(name)) values += static_cast<double>(tensor.numel());
  }
  const double needed = least_values(config);
  if (needed > values)
    throw checkpoint_error(
        "'{}' describes a model of {:.4g} values or more, and the files beside it hold {:.4g}.",
        file.string(), needed, values);
}

struct WeightShard {
  NamedTensors tensors;
  uint64_t bytes = 0;
};

void write_shards(const std::vector<WeightShard>& shards, uint64_t total, const fs::path& folder) {
  const std::map<std::string, std::string> metadata{{"format", "pt"}};  // transformers asks for it
  ProgressLine progress("Writing weights", total);
  const auto wrote = [&](uint64_t bytes) {
    throw_if_interrupted();
    progress.add(bytes);
  };
  if (shards.size() == 1) {
    write_safetensors(folder / "model.safetensors", shards[0].tensors, metadata, wrote);
    return;
  }
  nlohmann::json index{{"metadata", {{"total_size", total}}}};
  for (size_t i = 0; i < shards.size(); ++i) {
    throw_if_interrupted();
    const auto name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_safetensors(folder / name, shards[i].tensors, metadata, wrote);
    for (const auto& entry : shards[i].tensors) index["weight_map"][entry.first] = name;
  }
  write_file_whole(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace

at::ScalarType dtype_of_word(const std::string& word) {
  if (const auto dtype = choice_named<at::ScalarType>(word)) return *dtype;
  throw usage_error("'{}' is no dtype of weights: fp32, bf16 and fp16 are.", word);
}

bool has_tokenizer(const fs::path& folder) {
  if (path_exists(folder / "tokenizer.json") || path_exists(folder / "tokenizer.model")) return true;
  return path_exists(folder / "vocab.json") && path_exists(folder / "merges.txt");
}

HuggingFaceFolder read_hugging_face(const fs::path& folder) {
  const fs::path file = folder / "config.json";
  try {
    const auto config =
        config_from_hugging_face(nlohmann::json::parse(shallow_json(read_file(file))), file.string());
    const auto files = read_tensor_files(folder);
    check_sizes(config, files, file);
    return {config, std::string(name_of(common_dtype(files)))};
  } catch (const nlohmann::json::exception& error) {
    throw checkpoint_error("'{}' is damaged: {}.", file.string(), error.what());
  }
}

void import_weights(const fs::path& folder, LanguageModel& model) {
  c10::NoGradGuard no_grad;
  auto files = read_tensor_files(folder);
  common_dtype(files);
  auto& theirs = files.tensors;
  // A bare decoder is saved without the name of the part that it is in a model with a head.
  const std::string& prefix = family_of(model.config()).hugging_face.prefix;
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : theirs) bytes += tensor.nbytes();
  ProgressLine progress(fmt::format("Reading {}", folder.string()), bytes);
  for (const auto& slot : layout_of(model, [&](const auto& name) { return theirs.contains(name); })) {
    throw_if_interrupted();
    auto found = theirs.find(slot.name);
    if (found == theirs.end() && slot.name.starts_with(prefix))
      found = theirs.find(slot.name.substr(prefix.size()));
    if (found == theirs.end()) throw checkpoint_error("'{}' has no tensor '{}'.", folder.string(), slot.name);
    const auto file = files.file_of.at(found->first).string();
    const auto part = part_of(model.parameters().find(slot.parameter)->value.detach(), slot);
    if (found->second.sizes() != part.sizes()) {
      throw checkpoint_error("'{}': tensor '{}' has shape [{}], config.json makes it [{}].", file,
                             found->first, fmt::join(found->second.sizes(), ", "),
                             fmt::join(part.sizes(), ", "));
    }
    if (!at::isfinite(found->second).all().item<bool>()) {
      throw checkpoint_error(
          "'{}': tensor '{}' holds a NaN or an infinity: the file is damaged, or the training that made it "
          "diverged.",
          file, found->first);
    }
    part.copy_(found->second);
    progress.add(found->second.nbytes());
    theirs.erase(found);
  }
  for (const auto& [name, tensor] : theirs) {
    if (is_computed(name)) continue;
    const auto file = files.file_of.at(name).string();
    if (name != "lm_head.weight")
      throw checkpoint_error("'{}' has a tensor '{}' that a {} model lacks.", file, name,
                             model.config().family);
    const auto& embedding = model.parameters().find("embedding")->value;
    if (!at::equal(tensor.to(embedding.options()), embedding.detach()))
      throw checkpoint_error(
          "'{}': 'lm_head.weight' differs from the embedding, but config.json ties the two.", file);
  }
}

void export_weights(const LanguageModel& model, at::ScalarType dtype, const HuggingFaceTokens& tokens,
                    const fs::path& folder, uint64_t shard_bytes) {
  const auto& config = model.config();
  if (config.softcap != 0 && !family_of(config).hugging_face.own())
    throw usage_error("model.softcap has no place in the layout of {} models; it cannot be exported.",
                      config.family);
  std::vector<WeightShard> shards(1);
  uint64_t total = 0;
  for (const auto& slot : layout_of(model, [](const auto&) { return false; })) {
    throw_if_interrupted();
    auto tensor = part_of(model.parameters().find(slot.parameter)->value.detach(), slot).to(dtype);
    if (dtype == at::kHalf && !at::isfinite(tensor).all().item<bool>())
      throw checkpoint_error(
          "'{}' has a NaN or a value above 65504, which fp16 cannot hold: use --dtype bf16 or fp32.",
          slot.name);
    if (shards.back().bytes > 0 && shards.back().bytes + tensor.nbytes() > shard_bytes) shards.emplace_back();
    shards.back().bytes += tensor.nbytes(), total += tensor.nbytes();
    shards.back().tensors.emplace_back(slot.name, std::move(tensor));
  }
  write_shards(shards, total, folder);
  write_file_whole(folder / "config.json", config_to_hugging_face(config, dtype, tokens).dump(2) + "\n");
  write_file_whole(folder / "generation_config.json", generation_config({}, tokens).dump(2) + "\n");
}

}  // namespace tightloop
