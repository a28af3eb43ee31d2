#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "model/files/huggingface.h"

namespace tightloop {

namespace {

using Json = nlohmann::json;

constexpr const char* kNanochatType = "tightloop_nanochat";
constexpr double kSmall = 1e-30, kLarge = 1e15;  // numbers above 0, as far as any model has them

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

/// A config.json, asked key by key; what nobody asked for is known at the end.
class Settings {
 public:
  Settings(const Json& json, const std::string& file) : json_(json), file_(file) {
    if (!json.is_object()) throw checkpoint_error("'{}' is not a JSON object.", file);
  }

  bool has(const std::string& key) {
    asked_.insert(key);
    return json_.contains(key) && !json_[key].is_null();
  }
  int64_t size(const std::string& key, int64_t fallback = 0) {
    if (!has(key) && fallback > 0) return fallback;
    const auto& value = get(key);
    if (!value.is_number_integer() || value.get<double>() < 1 || value.get<double>() > (1 << 24)) {
      throw checkpoint_error("'{}': {} is {}; a whole number from 1 to 16777216 was expected.", file_, key,
                             value.dump());
    }
    return value.get<int64_t>();
  }
  double number(const std::string& key, double fallback, double low, double high) {
    if (!has(key)) return fallback;
    const auto& value = get(key);
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!(number >= low && number <= high))
      throw checkpoint_error("'{}': {} is {}; a number from {} to {} was expected.", file_, key, value.dump(),
                             low, high);
    return number;
  }
  /// A token's id, or several; nothing where there is none.
  void ids(const std::string& key, int64_t vocab_size) {
    if (!has(key)) return;
    const auto& value = get(key);
    const auto good = [&](const Json& id) {
      return id.is_number_integer() && id.get<double>() >= 0 &&
             id.get<double>() < static_cast<double>(vocab_size);
    };
    if (value.is_array() ? std::ranges::all_of(value, good) : good(value)) return;
    throw checkpoint_error("'{}': {} is {}; ids go from 0 to {}.", file_, key, value.dump(), vocab_size - 1);
  }
  bool flag(const std::string& key, bool fallback) {
    if (!has(key)) return fallback;
    const auto& value = get(key);
    if (!value.is_boolean()) throw checkpoint_error("'{}': {} is neither true nor false.", file_, key);
    return value.get<bool>();
  }
  std::string text(const std::string& key, const std::string& fallback) {
    if (!has(key)) return fallback;
    const auto& value = get(key);
    if (!value.is_string()) throw checkpoint_error("'{}': {} is not a text.", file_, key);
    return value.get<std::string>();
  }
  /// A setting that must stand at one of these values where it is given at all.
  void only(const std::string& key, const std::vector<Json>& allowed) {
    if (!has(key)) return;
    for (const auto& value : allowed)
      if (json_[key] == value) return;
    std::vector<std::string> names;
    for (const auto& value : allowed) names.push_back(value.dump());
    throw checkpoint_error("'{}': {} is {}, and only {} is supported.", file_, key, json_[key].dump(),
                           fmt::join(names, " or "));
  }
  const Json& get(const std::string& key) {
    if (!has(key)) throw checkpoint_error("'{}' does not say {}.", file_, key);
    return json_[key];
  }
  Settings part(const std::string& key) { return Settings(get(key), file_ + ": " + key); }
  void warn_of_the_rest() const {
    std::vector<std::string> rest;
    for (const auto& [key, value] : json_.items())
      if (!asked_.contains(key) && !kIgnored.contains(key)) rest.push_back(key);
    if (!rest.empty()) log::warn("'{}': not known and left aside: {}.", file_, fmt::join(rest, ", "));
  }
  const std::string& file() const { return file_; }

 private:
  const Json& json_;
  std::string file_;
  std::set<std::string> asked_;
};

void read_rope(Settings& settings, ModelConfig& config) {
  config.rope_theta = settings.number("rope_theta", 10000, kSmall, kLarge);
  // transformers 4 has the stretching in rope_scaling, 5 has it together with the base in rope_parameters.
  for (const std::string key : {"rope_scaling", "rope_parameters"}) {
    if (!settings.has(key)) continue;
    Settings rope = settings.part(key);
    config.rope_theta = rope.number("rope_theta", config.rope_theta, kSmall, kLarge);
    const auto kind = rope.text("rope_type", rope.text("type", "default"));
    if (rope.number("partial_rotary_factor", 1, 0, 1) != 1)
      throw checkpoint_error("'{}': partial_rotary_factor is not supported.", rope.file());
    if (kind == "default") continue;
    if (kind != "llama3")
      throw checkpoint_error("'{}': rope_type is '{}', and only default and llama3 are supported.",
                             rope.file(), kind);
    config.rope_scaling = "llama3";
    config.rope_factor = rope.number("factor", config.rope_factor, kSmall, kLarge);
    config.rope_low_freq = rope.number("low_freq_factor", config.rope_low_freq, kSmall, kLarge);
    config.rope_high_freq = rope.number("high_freq_factor", config.rope_high_freq, kSmall, kLarge);
    config.rope_original_context = rope.size("original_max_position_embeddings");
  }
  settings.only("partial_rotary_factor", {1.0});
}

void refuse_windows(Settings& settings, int64_t layers) {
  const bool on = settings.flag("use_sliding_window", false) && settings.has("sliding_window") &&
                  settings.size("max_window_layers", 1) < layers;
  bool by_layer = false;
  if (settings.has("layer_types"))
    for (const auto& type : settings.get("layer_types")) by_layer |= type != "full_attention";
  if (on || by_layer)
    throw checkpoint_error("'{}': {} asks for sliding windows, which are not supported here.",
                           settings.file(), by_layer ? "layer_types" : "use_sliding_window");
}

ModelConfig read_gpt2(Settings& settings) {
  ModelConfig config;
  config.family = "gpt2";
  config.vocab_size = settings.size("vocab_size");
  config.context = settings.size("n_positions", 1024);
  config.width = settings.size("n_embd");
  config.layers = settings.size("n_layer");
  config.heads = config.kv_heads = settings.size("n_head");
  config.ffn = settings.size("n_inner", 4 * config.width);
  config.norm_eps = settings.number("layer_norm_epsilon", 1e-5, kSmall, 1);
  config.tie_embeddings = settings.flag("tie_word_embeddings", true);
  config.dropout = settings.number("resid_pdrop", 0.1, 0, 0.99);
  for (const auto* key : {"embd_pdrop", "attn_pdrop"})
    if (settings.number(key, 0.1, 0, 0.99) != config.dropout)
      throw checkpoint_error("'{}': {} and resid_pdrop differ, and there is one dropout here.",
                             settings.file(), key);
  settings.only("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  settings.only("scale_attn_weights", {true});
  settings.only("scale_attn_by_inverse_layer_idx", {false});
  settings.only("add_cross_attention", {false});
  return config;
}

ModelConfig read_decoder(Settings& settings, const std::string& family) {
  ModelConfig config;
  config.family = family;
  config.vocab_size = settings.size("vocab_size");
  config.context = settings.size("max_position_embeddings", 2048);
  config.width = settings.size("hidden_size");
  config.layers = settings.size("num_hidden_layers");
  config.heads = settings.size("num_attention_heads");
  config.kv_heads = settings.size("num_key_value_heads", config.heads);
  config.norm_eps = settings.number("rms_norm_eps", 1e-6, kSmall, 1);
  config.tie_embeddings = settings.flag("tie_word_embeddings", false);
  if (settings.has("head_dim")) config.head_size = settings.size("head_dim");
  if (config.head_size == 0 && family.starts_with("qwen3")) config.head_size = 128;
  config.ffn = settings.size("intermediate_size");
  read_rope(settings, config);
  refuse_windows(settings, config.layers);
  settings.only("hidden_act", {"silu", "swish"});
  settings.only("attention_bias", {false});
  settings.only("mlp_bias", {false});
  settings.only("attention_dropout", {0.0});
  if (family == "qwen3_moe") {
    config.experts =
        settings.has("num_experts") ? settings.size("num_experts") : settings.size("num_local_experts", 128);
    config.experts_per_token = settings.size("num_experts_per_tok", 8);
    config.expert_ffn = settings.size("moe_intermediate_size");
    config.norm_topk = settings.flag("norm_topk_prob", false);
    config.balance_coef = settings.number("router_aux_loss_coef", 0.001, 0, 1e3);
    settings.has("num_local_experts");
    settings.only("decoder_sparse_step", {1});
    settings.only("mlp_only_layers", {Json::array()});
  }
  return config;
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

ModelConfig read_own(Settings& settings) {
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

}  // namespace

ModelConfig config_from_hugging_face(const Json& json, const std::string& file) {
  Settings settings(json, file);
  const auto type = settings.text("model_type", "");
  if (settings.has("quantization_config"))
    throw checkpoint_error("'{}': quantization_config: quantized weights are not supported.", file);
  ModelConfig config;
  if (type == "gpt2") {
    config = read_gpt2(settings);
  } else if (type == "llama" || type == "qwen2" || type == "qwen3" || type == "qwen3_moe") {
    config = read_decoder(settings, type);
  } else if (type == kNanochatType) {
    config = read_own(settings);
  } else {
    throw checkpoint_error(
        "'{}': model_type is '{}'; gpt2, llama, qwen2, qwen3, qwen3_moe and our own export of nanochat are "
        "supported.",
        file, type);
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
  const auto& family = config.family;
  nlohmann::ordered_json json;
  const auto id = [](int64_t token) { return token < 0 ? Json() : Json(token); };
  if (family == "nanochat") {
    json["model_type"] = kNanochatType;
    json["tightloop"] = own_settings(config);
  } else if (family == "gpt2") {
    json = {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", "gpt2"},
            {"activation_function", "gelu_new"},
            {"vocab_size", config.vocab_size},
            {"n_positions", config.context},
            {"n_embd", config.width},
            {"n_layer", config.layers},
            {"n_head", config.heads},
            {"n_inner", config.ffn},
            {"layer_norm_epsilon", config.norm_eps},
            {"resid_pdrop", config.dropout},
            {"embd_pdrop", config.dropout},
            {"attn_pdrop", config.dropout}};
  } else {
    const char* architecture = family == "llama"   ? "LlamaForCausalLM"
                               : family == "qwen2" ? "Qwen2ForCausalLM"
                               : family == "qwen3" ? "Qwen3ForCausalLM"
                                                   : "Qwen3MoeForCausalLM";
    json = {{"architectures", {architecture}},
            {"model_type", family},
            {"hidden_act", "silu"},
            {"vocab_size", config.vocab_size},
            {"max_position_embeddings", config.context},
            {"hidden_size", config.width},
            {"intermediate_size", config.ffn},
            {"num_hidden_layers", config.layers},
            {"num_attention_heads", config.heads},
            {"num_key_value_heads", config.kv_heads},
            {"head_dim", config.head_size},
            {"rms_norm_eps", config.norm_eps},
            {"rope_theta", config.rope_theta}};  // transformers 5 reads its elder's spelling, not the reverse
    if (config.rope_scaling == "llama3") {
      json["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", config.rope_factor},
                              {"low_freq_factor", config.rope_low_freq},
                              {"high_freq_factor", config.rope_high_freq},
                              {"original_max_position_embeddings", config.rope_original_context}};
    }
    if (family == "qwen3_moe") {
      json["num_experts"] = config.experts;
      json["num_experts_per_tok"] = config.experts_per_token;
      json["moe_intermediate_size"] = config.expert_ffn;
      json["norm_topk_prob"] = config.norm_topk;
      json["router_aux_loss_coef"] = config.balance_coef;
      json["decoder_sparse_step"] = 1;
      json["mlp_only_layers"] = Json::array();
    }
  }
  json["tie_word_embeddings"] = config.tie_embeddings;
  json["bos_token_id"] = id(tokens.begin);
  json["eos_token_id"] = id(tokens.end);
  json["torch_dtype"] = dtype == at::kFloat ? "float32" : dtype == at::kHalf ? "float16" : "bfloat16";
  return json;
}

}  // namespace tightloop
