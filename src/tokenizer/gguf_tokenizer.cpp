#include "tokenizer/gguf_tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "core/error.h"
#include "core/io/json_depth.h"
#include "tokenizer/bpe.h"
#include "tokenizer/jinja/template_files.h"
#include "tokenizer/sentencepiece.h"

namespace tightloop {

namespace {

constexpr const char *kModel = "tokenizer.ggml.model", *kTokens = "tokenizer.ggml.tokens",
                     *kTypes = "tokenizer.ggml.token_type", *kScores = "tokenizer.ggml.scores",
                     *kTemplate = "tokenizer.chat_template";

struct SpecialKey {
  const char* key;  // behind "tokenizer.ggml."
  int64_t GgufSpecialTokens::*id;
  const char* name;  // in tokenizer_config.json; null: none there
};
constexpr SpecialKey kSpecialKeys[] = {
    {"bos_token_id", &GgufSpecialTokens::begin, "bos_token"},
    {"eos_token_id", &GgufSpecialTokens::end, "eos_token"},
    {"eot_token_id", &GgufSpecialTokens::end_of_turn, nullptr},
    {"eom_token_id", &GgufSpecialTokens::end_of_message, nullptr},
    {"unknown_token_id", &GgufSpecialTokens::unknown, "unk_token"},
    {"padding_token_id", &GgufSpecialTokens::pad, "pad_token"},
};

std::string model_of(const GgufFile& file) {
  const GgufValue* model = file.metadata().find(kModel);
  if (!model || !model->text())
    throw checkpoint_error("'{}' has no tokenizer: {} is missing.", file.path().string(), kModel);
  return *model->text();
}

/// A list that must be there, as long as `count` where that is not 0.
const GgufValue& list_of(const GgufFile& file, const char* key, GgufKind kind, uint64_t count) {
  const GgufValue* value = file.metadata().find(key);
  const std::string path = file.path().string();
  if (!value || !value->list || value->kind != kind)
    throw checkpoint_error("'{}': {} must be a list of type {}.", path, key, name_of(kind));
  if (count != 0 && value->count() != count)
    throw checkpoint_error("'{}': {} has {} entries, and there are {} tokens.", path, key, value->count(),
                           count);
  return *value;
}

/// The templates, and the special tokens by their names.
ChatTemplateFiles read_chat(const GgufFile& file, const std::vector<std::string>& tokens) {
  ChatTemplateFiles chat;
  for (const auto& [key, value] : file.metadata().entries()) {
    if (key != kTemplate && !key.starts_with(kTemplate + std::string("."))) continue;
    if (!value.text()) throw checkpoint_error("'{}': {} is not a text.", file.path().string(), key);
    const std::string name = key == kTemplate ? "default" : key.substr(std::string(kTemplate).size() + 1);
    if (name.empty() || name.find_first_of("/\\") != name.npos)  // it names a file in a folder
      throw checkpoint_error("'{}': '{}' is no name of a chat template.", file.path().string(), key);
    chat.templates[name] = *value.text();
    chat.source = file.path().string();
  }
  const GgufSpecialTokens special = read_gguf_special_tokens(file);
  for (const SpecialKey& one : kSpecialKeys)
    if (const int64_t id = special.*one.id; one.name && id >= 0 && id < std::ssize(tokens))
      chat.tokens.emplace_back(one.name, tokens[static_cast<size_t>(id)]);
  return chat;
}

/// Empty where there is none.
std::string end_of_text_of(const Bpe& bpe) {
  try {
    return bpe.decode(std::vector{bpe.end_of_text()});
  } catch (const Error&) {
    return {};
  }
}

bool begins_with(const nlohmann::json& processor, const std::string& token) {
  if (!processor.is_object()) return false;
  if (processor.contains("processors"))
    for (const auto& step : processor["processors"])
      if (begins_with(step, token)) return true;
  if (processor.value("type", nlohmann::json()) != "TemplateProcessing" || !processor.contains("single"))
    return false;
  const auto& single = processor["single"];
  return single.is_array() && !single.empty() && single[0].is_object() &&
         single[0].contains("SpecialToken") && single[0]["SpecialToken"].is_object() &&
         single[0]["SpecialToken"].value("id", nlohmann::json()) == token;
}

}  // namespace

std::string gguf_filler(size_t id) { return fmt::format("[PAD{}]", id); }

GgufTokenLists read_gguf_token_lists(const GgufFile& file) {
  GgufTokenLists lists;
  lists.texts = list_of(file, kTokens, GgufKind::kString, 0).texts;
  const size_t count = lists.texts.size();
  if (count == 0 || count > static_cast<size_t>(kTokenLimit))
    throw checkpoint_error("'{}': {} has {} tokens; 1 to {} were expected.", file.path().string(), kTokens,
                           count, kTokenLimit);
  lists.types.assign(count, GgufTokenType::kNormal);
  if (file.metadata().find(kTypes)) {
    const GgufValue& types = list_of(file, kTypes, GgufKind::kInt32, count);
    for (size_t i = 0; i < count; ++i) {
      const auto type = types.integer(i).value_or(0);
      if (type < 1 || type > 6)
        throw checkpoint_error("'{}': {} of token {} is {}; types go from 1 to 6.", file.path().string(),
                               kTypes, i, type);
      lists.types[i] = static_cast<GgufTokenType>(type);
    }
  }
  if (file.metadata().find(kScores)) {
    const GgufValue& scores = list_of(file, kScores, GgufKind::kFloat32, count);
    lists.scores.resize(count);
    std::memcpy(lists.scores.data(), scores.bytes.data(), scores.bytes.size());
  }
  size_t used = count;
  while (used > 1 && lists.types[used - 1] == GgufTokenType::kUnused &&
         lists.texts[used - 1] == gguf_filler(used - 1))
    --used;
  lists.texts.resize(used), lists.types.resize(used);
  if (!lists.scores.empty()) lists.scores.resize(used);
  return lists;
}

void add_gguf_token_lists(GgufTokenLists lists, int64_t rows, GgufMetadata& metadata) {
  if (rows < std::ssize(lists.texts))
    throw usage_error("the tokenizer has {} tokens, and the model's embedding {} rows.", lists.texts.size(),
                      rows);
  for (size_t id = lists.texts.size(); id < static_cast<size_t>(rows); ++id) {
    lists.texts.push_back(gguf_filler(id));
    lists.types.push_back(GgufTokenType::kUnused);
    if (!lists.scores.empty()) lists.scores.push_back(-1000);  // as llama.cpp's converter has it
  }
  std::unordered_set<std::string_view> seen;
  for (const std::string& text : lists.texts)
    if (!seen.insert(text).second)
      throw usage_error(
          "the tokenizer has the token '{}' twice, which llama.cpp does not take: it cannot be exported as "
          "GGUF.",
          text);
  std::vector<int32_t> types;
  for (const GgufTokenType type : lists.types) types.push_back(static_cast<int32_t>(type));
  metadata.add(kTokens, GgufValue::of(std::move(lists.texts)));
  if (!lists.scores.empty()) metadata.add(kScores, GgufValue::of(lists.scores));
  metadata.add(kTypes, GgufValue::of(types));
}

void add_gguf_tokenizer(const Tokenizer& tokenizer, int64_t rows, const GgufSpecialTokens& special,
                        bool adds_begin, GgufMetadata& metadata) {
  if (const auto* bpe = dynamic_cast<const Bpe*>(&tokenizer))
    add_gguf_bpe(bpe->model(), end_of_text_of(*bpe), rows, metadata);
  else if (const auto* pieces = dynamic_cast<const SentencePiece*>(&tokenizer))
    add_gguf_sentencepiece(*pieces, rows, metadata);
  else
    throw usage_error("this kind of tokenizer has no place in a GGUF file.");
  for (const SpecialKey& one : kSpecialKeys)
    if (special.*one.id >= 0)
      metadata.add(std::string("tokenizer.ggml.") + one.key,
                   GgufValue::of(static_cast<uint32_t>(special.*one.id)));
  metadata.add("tokenizer.ggml.add_bos_token", GgufValue::of(adds_begin));
  metadata.add("tokenizer.ggml.add_eos_token", GgufValue::of(false));
}

bool adds_begin_of_text(const Tokenizer& tokenizer, int64_t begin) {
  const auto* bpe = dynamic_cast<const Bpe*>(&tokenizer);
  if (!bpe || begin < 0 || bpe->model().post_processor.empty()) return false;
  const auto processor =
      nlohmann::json::parse(shallow_json(bpe->model().post_processor), nullptr, /*allow_exceptions=*/false);
  return begins_with(processor, tokenizer.decode(std::vector{static_cast<int32_t>(begin)}));
}

bool has_gguf_tokenizer(const GgufFile& file) { return file.metadata().find(kModel) != nullptr; }

GgufSpecialTokens read_gguf_special_tokens(const GgufFile& file) {
  GgufSpecialTokens special;
  const GgufValue* tokens = file.metadata().find(kTokens);
  const auto count = tokens ? static_cast<int64_t>(tokens->count()) : 0;
  for (const SpecialKey& one : kSpecialKeys) {
    const std::string key = std::string("tokenizer.ggml.") + one.key;
    const GgufValue* value = file.metadata().find(key);
    if (!value) continue;
    const auto id = value->list ? std::nullopt : value->integer();
    if (!id || *id < 0 || *id >= count)
      throw checkpoint_error("'{}': {} is {}; ids go from 0 to {}.", file.path().string(), key,
                             id ? std::to_string(*id) : "no number", count - 1);
    special.*one.id = *id;
  }
  return special;
}

std::unique_ptr<Tokenizer> read_gguf_tokenizer(const GgufFile& file) {
  const std::string model = model_of(file), path = file.path().string();
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    if (model == "gpt2")
      tokenizer = std::make_unique<Bpe>(read_gguf_bpe(file), path);
    else if (model == "llama" || model == "t5")
      tokenizer = std::make_unique<SentencePiece>(read_gguf_sentencepiece(file), path);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kData) throw;
    throw checkpoint_error("{}", error.what());  // the parts of a tokenizer, wherever they are from
  }
  if (!tokenizer)
    throw checkpoint_error(
        "'{}': {} is '{}'; gpt2 (byte-level BPE), llama and t5 (SentencePiece) are supported.", path, kModel,
        model);
  tokenizer->set_chat(read_chat(file, file.metadata().find(kTokens)->texts));
  return tokenizer;
}

}  // namespace tightloop
