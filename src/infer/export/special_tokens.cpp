#include "infer/export/special_tokens.h"

#include "core/error.h"
#include "core/files.h"
#include "core/io/json_depth.h"
#include "infer/chat_session.h"
#include "model/files/huggingface_generation.h"

namespace tightloop {

namespace {

using OrderedJson = nlohmann::ordered_json;

}  // namespace

OrderedJson tokenizer_config(const fs::path& folder) {
  const fs::path path = folder / "tokenizer_config.json";
  if (!path_exists(path)) return OrderedJson::object();
  OrderedJson config = OrderedJson::parse(shallow_json(read_file(path)), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) throw data_error("'{}' is not a JSON object.", path.string());
  return config;
}

std::string token_name(const Tokenizer& tokenizer, int64_t id) {
  const auto is = [&](const std::string& name) { return tokenizer.token_id(name) == id; };
  if (std::string name = tokenizer.decode(std::vector{static_cast<int32_t>(id)}); is(name)) return name;
  for (const char* name : {"</s>", "<s>", "<pad>", "<|im_end|>", "<|endoftext|>", "<|bos|>"})
    if (is(name)) return name;
  return {};
}

int64_t named_token(const OrderedJson& config, const char* key, const Tokenizer& tokenizer) {
  if (!config.contains(key)) return -1;
  const OrderedJson& value =
      config[key].is_object() ? config[key].value("content", OrderedJson()) : config[key];
  if (!value.is_string()) return -1;
  return tokenizer.token_id(value.get<std::string>()).value_or(-1);
}

HuggingFaceTokens special_tokens(const SavedModel& saved, const Tokenizer* tokenizer,
                                 const OrderedJson& config) {
  const auto imported = imported_generation(saved.metadata());
  const auto first = [&](const char* key) -> int64_t {
    const auto ids = token_ids(imported, key);
    return ids.empty() || ids[0] >= saved.recipe().model.vocab_size ? -1 : ids[0];
  };
  HuggingFaceTokens tokens{
      .begin = first("bos_token_id"), .end = first("eos_token_id"), .pad = first("pad_token_id")};
  if (!tokenizer) return tokens;
  const auto named = [&](const char* key) { return named_token(config, key, *tokenizer); };
  const int32_t end_of_text = tokenizer->end_of_text();
  if (const int64_t begin = named("bos_token"); begin >= 0) tokens.begin = begin;
  if (tokens.begin < 0) tokens.begin = tokenizer->token_id("<|bos|>").value_or(-1);
  tokens.end = saved.metadata().value("end_of_turn", named("eos_token"));
  if (tokens.end < 0) tokens.end = end_of_text;
  if (const int64_t pad = named("pad_token"); pad >= 0) tokens.pad = pad;
  if (tokens.pad < 0) tokens.pad = end_of_text;  // rows are padded with it in training
  const auto chat = chat_template(saved.recipe().chat, *tokenizer);
  tokens.stops = stop_tokens(*tokenizer, chat.get(), imported_stop_tokens(saved.metadata()));
  return tokens;
}

}  // namespace tightloop
