#include "infer/export.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "data/render/chat_jinja.h"
#include "infer/export/special_tokens.h"
#include "infer/model_card.h"
#include "model/family.h"
#include "model/files/huggingface.h"
#include "model/files/huggingface_generation.h"
#include "train/run/saved_model.h"

namespace tightloop {

namespace {

using OrderedJson = nlohmann::ordered_json;

// A Hugging Face folder's own tokenizer goes along as it is.
bool copy_tokenizer(const fs::path& from, const fs::path& to) {
  if (!path_exists(from / "config.json") || !has_tokenizer(from)) return false;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model",
                           "chat_template.jinja", "chat_template.json", "additional_chat_templates"})
    if (path_exists(from / name)) copy_path(from / name, to / name);
  return true;
}

/// The files of the template that the tokenizer brought are there already. They count more than
/// tokenizer_config.json, so where the model has learned another form, that takes their place.
void write_chat_templates(const std::map<std::string, std::string>& templates, OrderedJson& config,
                          const fs::path& folder) {
  const fs::path file = folder / "chat_template.jinja", others = folder / "additional_chat_templates";
  if (!path_exists(file) && !path_exists(others)) {
    config["chat_template"] = templates.at("default");
    return;
  }
  fs::remove_all(others);
  for (const auto& [name, jinja] : templates) {
    if (name != "default") make_folder(others);
    write_file_whole(name == "default" ? file : others / (name + ".jinja"), jinja);
  }
}

void write_tokenizer_config(const Tokenizer& tokenizer, const Recipe& recipe, const HuggingFaceTokens& tokens,
                            OrderedJson config, const fs::path& folder) {
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  config["model_max_length"] = recipe.model.context;
  config["clean_up_tokenization_spaces"] = false;
  for (const auto& [key, id] :
       {std::pair{"bos_token", tokens.begin}, {"eos_token", tokens.end}, {"pad_token", tokens.pad}})
    if (const auto name = id < 0 ? "" : token_name(tokenizer, id);
        !name.empty() && named_token(config, key, tokenizer) != id)
      config[key] = name;
  if (tokens.end != tokenizer.end_of_text())  // what ends a turn does not part documents
    config["tightloop"]["end_of_text"] = token_name(tokenizer, tokenizer.end_of_text());
  if (const auto templates = chat_jinja(recipe.chat, tokenizer); !templates.empty())
    write_chat_templates(templates, config, folder);
  write_file_whole(folder / "tokenizer_config.json", config.dump(2) + "\n");
}

/// The tokenizer's files; gives the tokens that config.json and generation_config.json name.
HuggingFaceTokens write_tokenizer(const SavedModel& saved, const Recipe& recipe, const Tokenizer* tokenizer,
                                  const fs::path& folder) {
  if (!tokenizer) return special_tokens(saved, nullptr, {});
  const bool copied = copy_tokenizer(saved.path(), folder);
  if (!copied) tokenizer->save(folder);
  const OrderedJson config = tokenizer_config(folder);
  const auto tokens = special_tokens(saved, tokenizer, config);
  if (!copied) write_tokenizer_config(*tokenizer, recipe, tokens, config, folder);
  return tokens;
}

/// A Hugging Face folder's own goes along.
void write_model_card(const SavedModel& saved, const LanguageModel& model, const std::string& name,
                      const fs::path& folder) {
  constexpr const char* kCard = "README.md";
  if (!saved.is_run() && path_exists(saved.path() / kCard))
    return copy_path(saved.path() / kCard, folder / kCard);
  const bool chat =
      tokenizer_config(folder).contains("chat_template") || path_exists(folder / "chat_template.jinja");
  write_file_whole(folder / kCard, model_card(saved, model, name, chat));
}

}  // namespace

std::string export_model(const fs::path& from, const fs::path& to, const ExportOptions& options) {
  if (path_exists(to) && !(is_folder(to) && folder_entries(to).empty()))
    throw usage_error("'{}' exists already and is not an empty folder; choose another --to.", to.string());
  const SavedModel saved(from, options.step);
  Recipe recipe = saved.recipe();
  if (const auto& why = family_of(recipe.model).hugging_face.none; !why.empty())
    throw usage_error("'{}' cannot be exported: {}.", from.string(), why);
  const auto tokenizer = saved.tokenizer();
  recipe.model.resolve(tokenizer ? tokenizer->vocab_size() : 0, recipe.data.seq_len);
  const auto model = make_model(recipe.model, recipe.train.seed);
  saved.load_weights(*model);
  const at::ScalarType dtype =
      options.dtype ? *options.dtype : dtype_of_word(saved.metadata().value("dtype", "bf16"));

  const fs::path target = to.has_filename() ? to : to.parent_path();
  const fs::path beside = partial_path(target);
  make_folder(beside);
  try {
    const auto tokens = write_tokenizer(saved, recipe, tokenizer.get(), beside);
    export_weights(*model, dtype, tokens, beside, options.shard_bytes);
    const auto generation = generation_config(imported_generation(saved.metadata()), tokens);
    write_file_whole(beside / "generation_config.json", generation.dump(2) + "\n");
    write_model_card(saved, *model, target.filename().string(), beside);
    sync_folder(beside);
    std::error_code failure;
    fs::rename(beside, target, failure);  // over an empty folder, never over a full one
    if (failure)
      throw usage_error(
          "'{}' cannot be put in place ({}): did another process write there? Choose another "
          "--to.",
          target.string(), failure.message());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(beside, ignored);
    throw;
  }
  return std::string(name_of(dtype));
}

}  // namespace tightloop
