#include "infer/export/export_gguf.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "data/render/chat_jinja.h"
#include "infer/chat_session.h"
#include "infer/export/special_tokens.h"
#include "model/files/gguf_layout.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/jinja/template_files.h"
#include "tokenizer/sentencepiece.h"

namespace tightloop {

namespace {

constexpr const char* kName = "general.name";

/// What tokenizer_config.json would name.
nlohmann::ordered_json token_names(const Tokenizer& tokenizer) {
  auto names = nlohmann::ordered_json::object();
  for (const auto& [key, token] : tokenizer.chat().tokens) names[key] = token;
  return names;
}

/// llama.cpp stops at three: the end, that of a turn and that of a message; others it knows by their text.
GgufSpecialTokens gguf_special_tokens(const SavedModel& saved, const Tokenizer& tokenizer) {
  const HuggingFaceTokens tokens = special_tokens(saved, &tokenizer, token_names(tokenizer));
  GgufSpecialTokens special{.begin = tokens.begin, .end = tokens.end, .pad = tokens.pad};
  const auto chat = chat_template(saved.recipe().chat, tokenizer);
  if (chat) special.end_of_turn = chat->end_of_turn();
  std::vector<int32_t> others = tokens.stops;
  std::ranges::sort(others);
  for (const int32_t id : others) {
    if (id == special.end || id == special.end_of_turn) continue;
    int64_t& place = special.end_of_turn < 0 ? special.end_of_turn : special.end_of_message;
    if (place < 0) place = id;
  }
  return special;
}

/// Whether an imported file puts a token before or behind each text: llama.cpp's flag, or what it takes
/// where there is none.
bool adds_in_file(const GgufFile& source, const char* key, const std::string& usual_model) {
  const GgufValue* flag = source.metadata().find(key);
  if (flag && flag->flag()) return *flag->flag();
  const GgufValue* model = source.metadata().find("tokenizer.ggml.model");
  return model && model->text() && *model->text() == usual_model;
}

/// Whether the imported folder or file puts the begin of a text before each.
bool adds_begin(const SavedModel& saved, const GgufFile* source, const Tokenizer& tokenizer, int64_t begin) {
  if (source && dynamic_cast<const SentencePiece*>(&tokenizer))
    return begin >= 0 && adds_in_file(*source, "tokenizer.ggml.add_bos_token", "llama");
  if (!saved.is_run() && is_folder(saved.path())) {
    const auto config = tokenizer_config(saved.path());
    if (const auto flag = config.find("add_bos_token"); flag != config.end() && flag->is_boolean())
      return begin >= 0 && flag->get<bool>();
  }
  return adds_begin_of_text(tokenizer, begin);
}

void add_chat_templates(const Recipe& recipe, const Tokenizer& tokenizer, GgufMetadata& metadata) {
  const std::string key = "tokenizer.chat_template";
  auto templates = chat_jinja(recipe.chat, tokenizer);
  if (templates.empty()) templates = tokenizer.chat().templates;
  std::vector<std::string> names;
  for (const auto& [name, text] : templates)
    if (name == "default")
      metadata.add(key, GgufValue::of(text));
    else
      names.push_back(name);
  if (names.empty()) return;
  metadata.add("tokenizer.chat_templates", GgufValue::of(names));
  for (const std::string& name : names) metadata.add(key + "." + name, GgufValue::of(templates.at(name)));
}

/// What an imported GGUF file says of its origin, licence and the like, and of tokens that only llama.cpp
/// uses (those around a gap to fill in, ...). Lists of its tokenizer are written anew.
void keep_the_rest(const GgufFile& file, const std::string& architecture, GgufMetadata& metadata) {
  for (const auto& [key, value] : file.metadata().entries()) {
    const bool of_tokens = key.starts_with("tokenizer.ggml.") && !value.list;
    if ((of_tokens || !key.starts_with("tokenizer.")) && !key.starts_with("tightloop.") &&
        !key.starts_with(architecture + ".") && key != "general.alignment" && !key.starts_with("split."))
      metadata.add(key, value);  // not what is there already
  }
}

std::string name_of_model(const SavedModel& saved, const GgufFile* source) {
  if (source)
    if (const GgufValue* name = source->metadata().find(kName); name && name->text()) return *name->text();
  if (!saved.is_run()) return saved.metadata().value("base_model", "model");
  return fs::absolute(saved.path() / "").lexically_normal().parent_path().filename().string();
}

GgufWeights weights_of(const SavedModel& saved) {
  const std::string word = saved.metadata().value("gguf_weights", saved.metadata().value("dtype", "bf16"));
  return choice_named<GgufWeights>(word).value_or(GgufWeights::kBf16);
}

}  // namespace

std::string export_gguf(const fs::path& from, const fs::path& to, std::optional<GgufWeights> weights,
                        std::optional<int64_t> step) {
  if (is_folder(to) || !to.has_filename())
    throw usage_error("'{}' is a folder; --format gguf writes one file: --to {}.", to.string(),
                      (to / "model.gguf").string());
  if (path_exists(to)) throw usage_error("'{}' exists already; choose another --to.", to.string());
  const SavedModel saved(from, step);
  Recipe recipe = saved.recipe();
  if (recipe.model.translates())
    throw usage_error(
        "'{}' cannot be exported: it is a translator (seq2seq), which llama.cpp has no architecture for.",
        from.string());
  require_gguf_layout(recipe.model);
  const auto tokenizer = saved.tokenizer();
  if (!tokenizer)
    throw data_error("'{}' has no tokenizer, and a GGUF file holds one: copy its tokenizer.json there.",
                     saved.path().string());
  recipe.model.resolve(tokenizer->vocab_size(), recipe.data.seq_len);
  if (!weights) weights = weights_of(saved);

  std::optional<GgufFile> source;
  if (is_gguf_name(saved.path()) && is_file(saved.path())) source.emplace(saved.path());
  const std::string& architecture = gguf_layout_of(recipe.model)->architecture;
  GgufMetadata metadata;
  metadata.add("general.architecture", GgufValue::of(architecture));
  metadata.add("general.type", GgufValue::of("model"));
  metadata.add(kName, GgufValue::of(name_of_model(saved, source ? &*source : nullptr)));
  add_gguf_settings(recipe.model, *weights, metadata);
  const GgufSpecialTokens special = gguf_special_tokens(saved, *tokenizer);
  if (source && adds_in_file(*source, "tokenizer.ggml.add_eos_token", "t5"))
    metadata.add("tokenizer.ggml.add_eos_token", GgufValue::of(true));
  add_gguf_tokenizer(*tokenizer, recipe.model.vocab_size, special,
                     adds_begin(saved, source ? &*source : nullptr, *tokenizer, special.begin), metadata);
  add_chat_templates(recipe, *tokenizer, metadata);
  if (source) keep_the_rest(*source, architecture, metadata);

  const auto model = make_model(recipe.model, recipe.train.seed);
  saved.load_weights(*model);
  if (to.has_parent_path()) make_folder(to.parent_path());
  export_gguf_weights(*model, *weights, metadata, to);
  return std::string(name_of(*weights));
}

}  // namespace tightloop
