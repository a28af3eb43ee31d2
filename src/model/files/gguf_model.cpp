#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <map>
#include <set>

#include "core/error.h"
#include "model/files/gguf.h"
#include "model/files/gguf_layout.h"
#include "model/files/gguf_settings.h"
#include "model/least_values.h"

namespace tightloop {

namespace {

GgufWeights weights_of(const GgufTensor& tensor, const std::string& path) {
  const std::string_view type = tensor.type->name;
  if (type == "F32") return GgufWeights::kFp32;
  if (type == "BF16") return GgufWeights::kBf16;
  if (type == "F16") return GgufWeights::kFp16;
  if (type == "Q8_0") return GgufWeights::kQ8_0;
  throw checkpoint_error(
      "'{}': tensor '{}' is of type {}; F32, F16, BF16 and Q8_0 are read here. Take a file of one of these, "
      "or "
      "the Hugging Face folder.",
      path, tensor.name, type);
}

/// Whether rounding to a dtype leaves an fp32 tensor as it is.
bool fits(const GgufFile& file, const GgufTensor& tensor, at::ScalarType dtype) {
  const auto values = at::from_blob(const_cast<char*>(file.data(tensor)), {tensor.values()}, at::kFloat);
  return at::equal(values.to(dtype).to(at::kFloat), values);
}

/// The type of most values, and the narrowest dtype that holds all.
void read_types(const GgufFile& file, GgufModel& model) {
  std::map<GgufWeights, double> values;
  for (const GgufTensor& tensor : file.tensors())
    values[weights_of(tensor, file.path().string())] += static_cast<double>(tensor.values());
  double most = 0;
  for (const auto& [weights, count] : values)
    if (weights != GgufWeights::kFp32 && count > most) most = count, model.weights = weights;
  model.dtype = "fp32";
  const bool whole = model.weights == GgufWeights::kFp16 || model.weights == GgufWeights::kBf16;
  if (!whole || values.size() > 2 || (values.size() == 2 && !values.contains(GgufWeights::kFp32))) return;
  const auto dtype = model.weights == GgufWeights::kFp16 ? at::kHalf : at::kBFloat16;
  std::set<std::string> computed;  // which are no weights
  if (const auto compute = gguf_layout_of(model.config)->computed)
    for (const auto& [name, values_of] : compute(model.config)) computed.insert(name);
  for (const GgufTensor& tensor : file.tensors())
    if (tensor.type->name == "F32" && !computed.contains(tensor.name) && !fits(file, tensor, dtype)) return;
  model.dtype = name_of(model.weights);
}

/// Before a model of these sizes is made.
void check_sizes(const ModelConfig& config, const GgufFile& file) {
  double values = 0;
  for (const GgufTensor& tensor : file.tensors()) values += static_cast<double>(tensor.values());
  if (const double needed = least_values(config); needed > values)
    throw checkpoint_error("'{}' describes a model of {:.4g} values or more, and has {:.4g}.",
                           file.path().string(), needed, values);
}

// As llama.cpp numbers the types of whole files.
uint32_t file_type(GgufWeights weights) {
  switch (weights) {
    case GgufWeights::kFp32:
      return 0;
    case GgufWeights::kFp16:
      return 1;
    case GgufWeights::kQ8_0:
      return 7;
    case GgufWeights::kBf16:
      return 32;
  }
  return 0;
}

}  // namespace

GgufModel read_gguf_model(const GgufFile& file) {
  const std::string path = file.path().string();
  const GgufValue* architecture = file.metadata().find("general.architecture");
  if (!architecture || !architecture->text())
    throw checkpoint_error("'{}' does not say general.architecture: it is not a model.", path);
  const GgufLayout* layout = gguf_layout_with(*architecture->text());
  if (!layout)
    throw checkpoint_error("'{}': general.architecture is '{}'; {} are supported.", path,
                           *architecture->text(), gguf_architectures());
  if (const GgufValue* parts = file.metadata().find("split.count");
      parts && !parts->list && parts->integer().value_or(0) > 1)
    throw checkpoint_error(
        "'{}' is one of {} files that a model was split into, and only whole ones are read. llama.cpp's "
        "llama-gguf-split --merge makes one of them.",
        path, *parts->integer());
  const GgufTensor* embedding = file.find("token_embd.weight");
  if (!embedding || embedding->sizes.size() != 2)
    throw checkpoint_error("'{}' has no tensor 'token_embd.weight' of two dimensions.", path);
  GgufModel model;
  model.config.family = layout->family;
  model.config.vocab_size = embedding->sizes[1];
  model.config.tie_embeddings = !file.find("output.weight");
  GgufSettings settings(file, layout->architecture);
  settings.only("vocab_size", static_cast<double>(model.config.vocab_size));
  layout->read(settings, model.config);
  settings.warn_of_the_rest();
  try {
    model.config.resolve(0, 0);
  } catch (const Error& error) {
    throw checkpoint_error("'{}': {}", path, error.what());
  }
  check_sizes(model.config, file);
  read_types(file, model);
  return model;
}

void require_gguf_layout(const ModelConfig& config) {
  if (!gguf_layout_of(config))
    throw usage_error(
        "llama.cpp has no architecture for {} models, so that no GGUF file can be written; --format hf "
        "writes a folder.",
        config.family);
  if (config.softcap != 0)
    throw usage_error("model.softcap has no place in llama.cpp's {} models; it cannot be exported as GGUF.",
                      config.family);
}

void add_gguf_settings(const ModelConfig& config, GgufWeights weights, GgufMetadata& metadata) {
  require_gguf_layout(config);
  const GgufLayout& layout = *gguf_layout_of(config);
  metadata.add(layout.architecture + ".vocab_size", GgufValue::of(static_cast<uint32_t>(config.vocab_size)));
  layout.write(config, metadata);
  metadata.add("general.file_type", GgufValue::of(file_type(weights)));
  metadata.add("general.quantization_version", GgufValue::of(uint32_t{2}));
}

}  // namespace tightloop
