#include "model/files/huggingface_generation.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/files.h"
#include "core/io/json_depth.h"
#include "model/files/huggingface_settings.h"

namespace tightloop {

namespace {

using Json = nlohmann::json;

constexpr const char* kStops = "eos_token_id";

Json read_object(const fs::path& file) {
  Json json = Json::parse(shallow_json(read_file(file)), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw checkpoint_error("'{}' is not a JSON object.", file.string());
  return json;
}

}  // namespace

Json read_generation_config(const fs::path& folder, int64_t vocab_size) {
  const fs::path file = folder / "generation_config.json";
  const Json model = read_object(folder / "config.json");
  const bool alone = path_exists(file);
  Json config = alone ? read_object(file) : Json::object();
  HuggingFaceSettings(config, file.string()).ids(kStops, vocab_size);
  for (const char* key : {kStops, "bos_token_id", "pad_token_id"}) {
    const bool wanted = key == kStops ? token_ids(config, key).empty() : !alone;
    if (wanted && model.contains(key) && !model[key].is_null()) config[key] = model[key];
  }
  return config;
}

std::vector<int32_t> token_ids(const Json& config, const std::string& key) {
  if (!config.is_object() || !config.contains(key)) return {};
  const Json& value = config[key];
  std::vector<int32_t> ids;
  const auto add = [&](const Json& id) {
    if (id.is_number_integer() && std::in_range<int32_t>(id.get<int64_t>())) ids.push_back(id.get<int32_t>());
  };
  if (value.is_array())
    std::ranges::for_each(value, add);
  else
    add(value);
  return ids;
}

Json generation_config(const Json& imported, const HuggingFaceTokens& tokens) {
  Json config = imported.is_object() ? imported : Json::object();
  std::vector<int32_t> stops = token_ids(config, kStops);
  const auto add = [&](int32_t id) {
    if (id >= 0 && std::ranges::find(stops, id) == stops.end()) stops.push_back(id);
  };
  add(static_cast<int32_t>(tokens.end));
  std::ranges::for_each(tokens.stops, add);
  if (!stops.empty()) config[kStops] = stops;
  for (const auto& [key, id] : {std::pair{"bos_token_id", tokens.begin}, {"pad_token_id", tokens.pad}})
    if (id >= 0 && (!config.contains(key) || config[key].is_null())) config[key] = id;
  // transformers would make the settings anew from config.json, which has one stop token.
  config.erase("_from_model_config");
  return config;
}

}  // namespace tightloop
