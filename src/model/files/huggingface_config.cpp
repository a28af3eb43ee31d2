#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "model/family.h"
#include "model/files/huggingface.h"
#include "model/files/huggingface_settings.h"

namespace tightloop {

namespace {

using Json = nlohmann::json;

std::string model_type(const Family& family) {
  return family.hugging_face.own() ? "tightloop_" + family.name : family.name;
}

// Our own names and values, for a family that has no layout of theirs.
Json own_settings(ModelConfig config) {
  Fields fields;
  config.describe(fields);
  Json settings = Json::object();
  for (const auto& field : fields.all())
    if (field.name() != "preset")
      settings[field.name()] = Json::parse(field.text());  // YAML's scalars are JSON's
  return settings;
}

ModelConfig read_own(HuggingFaceSettings& settings) {
  ModelConfig model;
  Config config;
  config.add_section("model", model, "The network");
  for (const auto& [key, value] : settings.get("tightloop").items()) {
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (text.starts_with('"')) text = Json::parse(text).get<std::string>();  // older exports quoted twice
    try {
      config.set("model." + key, text);
    } catch (const Error& error) {
      throw checkpoint_error("'{}': {}", settings.file(), error.what());
    }
  }
  return model;
}

/// The family whose files have this model_type.
const Family* readable(const std::string& type) {
  for (const auto& family : families())
    if (family.hugging_face.none.empty() && model_type(family) == type) return &family;
  return nullptr;
}

std::string readable_names(bool own) {
  std::vector<std::string> names;
  for (const auto& family : families())
    if (family.hugging_face.none.empty() && family.hugging_face.own() == own) names.push_back(family.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

ModelConfig config_from_hugging_face(const Json& json, const std::string& file) {
  HuggingFaceSettings settings(json, file);
  const auto type = settings.text("model_type", "");
  if (settings.has("quantization_config"))
    throw checkpoint_error("'{}': quantization_config: quantized weights are not supported.", file);
  ModelConfig config;
  const Family* family = readable(type);
  if (!family)
    throw checkpoint_error("'{}': model_type is '{}'; {} and our own export of {} are supported.", file, type,
                           readable_names(/*own=*/false), readable_names(/*own=*/true));
  if (family->hugging_face.own()) {
    config = read_own(settings);
  } else {
    config.family = family->name;
    family->hugging_face.read(settings, config);
  }
  settings.warn_of_the_rest();
  try {
    config.resolve(0, 0);
  } catch (const Error& error) {
    throw checkpoint_error("'{}': {}", file, error.what());
  }
  for (const char* key : {"bos_token_id", "eos_token_id"}) settings.ids(key, config.vocab_size);
  return config;
}

nlohmann::ordered_json config_to_hugging_face(const ModelConfig& config, at::ScalarType dtype,
                                              const HuggingFaceTokens& tokens) {
  const Family& family = family_of(config);
  nlohmann::ordered_json json;
  const auto id = [](int64_t token) { return token < 0 ? Json() : Json(token); };
  if (family.hugging_face.own()) {
    json["model_type"] = model_type(family);
    json["tightloop"] = own_settings(config);
  } else {
    json["architectures"] = nlohmann::ordered_json::array({family.hugging_face.architecture});
    json["model_type"] = model_type(family);
    family.hugging_face.write(config, json);
  }
  json["tie_word_embeddings"] = config.tie_embeddings;
  json["bos_token_id"] = id(tokens.begin);
  json["eos_token_id"] = id(tokens.end);
  json["torch_dtype"] = dtype == at::kFloat ? "float32" : dtype == at::kHalf ? "float16" : "bfloat16";
  return json;
}

}  // namespace tightloop
