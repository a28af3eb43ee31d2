#include "infer/export.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "core/io/json_depth.h"
#include "data/render/chat_jinja.h"
#include "model/family.h"
#include "model/files/huggingface.h"
#include "train/run/saved_model.h"

namespace tightloop {

namespace {

// A Hugging Face folder's own tokenizer goes along as it is.
bool copy_tokenizer(const fs::path& from, const fs::path& to) {
  if (!path_exists(from / "config.json") || !has_tokenizer(from)) return false;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja"})
    if (path_exists(from / name)) copy_path(from / name, to / name);
  return true;
}

void write_tokenizer(const Tokenizer& tokenizer, const Recipe& recipe, const fs::path& folder) {
  tokenizer.save(folder);
  const std::string end = tokenizer.decode(std::vector<int32_t>{tokenizer.end_of_text()});
  const fs::path path = folder / "tokenizer_config.json";
  auto config = path_exists(path) ? nlohmann::ordered_json::parse(shallow_json(read_file(path)))
                                  : nlohmann::ordered_json();
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  config["model_max_length"] = recipe.model.context;
  config["clean_up_tokenization_spaces"] = false;
  config["eos_token"] = end;
  const auto jinja = chat_jinja(recipe.chat, tokenizer);
  if (!jinja.empty()) config["chat_template"] = jinja;
  write_file_whole(path, config.dump(2) + "\n");
}

HuggingFaceTokens tokens_of(const Tokenizer& tokenizer) {
  const auto begin = tokenizer.token_id("<|bos|>");
  return {.begin = begin ? *begin : -1, .end = tokenizer.end_of_text()};
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
    export_weights(*model, dtype, tokenizer ? tokens_of(*tokenizer) : HuggingFaceTokens{}, beside,
                   options.shard_bytes);
    if (tokenizer && !copy_tokenizer(from, beside)) write_tokenizer(*tokenizer, recipe, beside);
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
