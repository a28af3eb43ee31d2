#include "model/files/huggingface_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/log.h"

namespace tightloop {

namespace {

// Says nothing about what a decoder computes.
const std::set<std::string> kIgnored{"_attn_implementation",
                                     "_name_or_path",
                                     "architectures",
                                     "auto_map",
                                     "bos_token_id",
                                     "dtype",
                                     "eos_token_id",
                                     "initializer_range",
                                     "max_window_layers",
                                     "model_type",
                                     "n_ctx",
                                     "output_router_logits",
                                     "pad_token_id",
                                     "pretraining_tp",
                                     "reorder_and_upcast_attn",
                                     "rope_interleaved",
                                     "sliding_window",
                                     "summary_activation",
                                     "summary_first_dropout",
                                     "summary_proj_to_labels",
                                     "summary_type",
                                     "summary_use_proj",
                                     "task_specific_params",
                                     "torch_dtype",
                                     "transformers_version",
                                     "use_cache",
                                     "chunk_size_feed_forward",
                                     "id2label",
                                     "is_decoder",
                                     "is_encoder_decoder",
                                     "label2id",
                                     "output_attentions",
                                     "output_hidden_states",
                                     "problem_type",
                                     "return_dict"};

}  // namespace

HuggingFaceSettings::HuggingFaceSettings(const Json& json, const std::string& file)
    : json_(json), file_(file) {
  if (!json.is_object()) throw checkpoint_error("'{}' is not a JSON object.", file);
}

bool HuggingFaceSettings::has(const std::string& key) {
  asked_.insert(key);
  return json_.contains(key) && !json_[key].is_null();
}

int64_t HuggingFaceSettings::size(const std::string& key, int64_t fallback) {
  if (!has(key) && fallback > 0) return fallback;
  const auto& value = get(key);
  if (!value.is_number_integer() || value.get<double>() < 1 || value.get<double>() > (1 << 24)) {
    throw checkpoint_error("'{}': {} is {}; a whole number from 1 to 16777216 was expected.", file_, key,
                           value.dump());
  }
  return value.get<int64_t>();
}

double HuggingFaceSettings::number(const std::string& key, double fallback, double low, double high) {
  if (!has(key)) return fallback;
  const auto& value = get(key);
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  if (!(number >= low && number <= high))
    throw checkpoint_error("'{}': {} is {}; a number from {} to {} was expected.", file_, key, value.dump(),
                           low, high);
  return number;
}

void HuggingFaceSettings::ids(const std::string& key, int64_t vocab_size) {
  if (!has(key)) return;
  const auto& value = get(key);
  const auto good = [&](const Json& id) {
    return id.is_number_integer() && id.get<double>() >= 0 &&
           id.get<double>() < static_cast<double>(vocab_size);
  };
  if (value.is_array() ? std::ranges::all_of(value, good) : good(value)) return;
  throw checkpoint_error("'{}': {} is {}; ids go from 0 to {}.", file_, key, value.dump(), vocab_size - 1);
}

bool HuggingFaceSettings::flag(const std::string& key, bool fallback) {
  if (!has(key)) return fallback;
  const auto& value = get(key);
  if (!value.is_boolean()) throw checkpoint_error("'{}': {} is neither true nor false.", file_, key);
  return value.get<bool>();
}

std::string HuggingFaceSettings::text(const std::string& key, const std::string& fallback) {
  if (!has(key)) return fallback;
  const auto& value = get(key);
  if (!value.is_string()) throw checkpoint_error("'{}': {} is not a text.", file_, key);
  return value.get<std::string>();
}

void HuggingFaceSettings::only(const std::string& key, const std::vector<Json>& allowed) {
  if (!has(key)) return;
  for (const auto& value : allowed)
    if (json_[key] == value) return;
  std::vector<std::string> names;
  for (const auto& value : allowed) names.push_back(value.dump());
  throw checkpoint_error("'{}': {} is {}, and only {} is supported.", file_, key, json_[key].dump(),
                         fmt::join(names, " or "));
}

const HuggingFaceSettings::Json& HuggingFaceSettings::get(const std::string& key) {
  if (!has(key)) throw checkpoint_error("'{}' does not say {}.", file_, key);
  return json_[key];
}

HuggingFaceSettings HuggingFaceSettings::part(const std::string& key) {
  return HuggingFaceSettings(get(key), file_ + ": " + key);
}

void HuggingFaceSettings::warn_of_the_rest() const {
  std::vector<std::string> rest;
  for (const auto& [key, value] : json_.items())
    if (!asked_.contains(key) && !kIgnored.contains(key)) rest.push_back(key);
  if (!rest.empty()) log::warn("'{}': not known and left aside: {}.", file_, fmt::join(rest, ", "));
}

}  // namespace tightloop
