#include "cli/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "cli/model_choice.h"
#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "core/plugin.h"
#include "core/terminal/terminal.h"
#include "data/mixture.h"
#include "data/store/infer_source.h"
#include "dist/rendezvous.h"
#include "model/family.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode/unicode.h"
#include "train/run/run_length.h"
#include "train/run/saved_model.h"
#include "train/settings/auto_sizes.h"
#include "train/settings/depth_dial.h"
#include "train/settings/resolve_source.h"

namespace tightloop::cli {

namespace {

/// A run writes its settings down as UTF-8; what is not would come back as something else.
void refuse_other_encodings(const std::string& file, const Settings& settings) {
  for (const std::string& setting : settings)
    if (!is_utf8(setting))
      throw usage_error("'{}' is not UTF-8, so a run could not keep it as a setting. Rename the file.",
                        setting);
  if (!is_utf8(read_file(file))) throw usage_error("'{}' is not UTF-8.", file);
}

/// What the name of a file says that data.source would be; none where it is no data.
std::optional<DataSource> source_by_name(const std::string& file) {
  static const std::map<std::string, DataSource> sources{
      {".txt", DataSource::kText},     {".md", DataSource::kText},   {".text", DataSource::kText},
      {".html", DataSource::kText},    {".csv", DataSource::kText},  {".jsonl", DataSource::kJsonl},
      {".ndjson", DataSource::kJsonl}, {".tsv", DataSource::kPairs}, {".parquet", DataSource::kParquet}};
  fs::path name = file;
  if (name.extension() == ".gz" || name.extension() == ".zst") name.replace_extension();
  const auto found = sources.find(name.extension().string());
  if (found == sources.end()) return {};
  return found->second;
}

bool holds_conversations(const std::string& file) {
  DataConfig data;
  data.train = {file};
  try {
    return infer_source(data, /*pairs=*/false).format == RecordFormat::kChat;
  } catch (const Error&) {
    return false;  // training says what is wrong with it
  }
}

void refuse_what_is_no_recipe(const std::string& file) {
  std::error_code failure;
  const bool there = fs::exists(file, failure);
  if (failure) return;  // Config::load() says what the system refuses
  if (path_exists(fs::path(file) / "config.yaml"))
    throw usage_error("'{}' is a run, not a recipe. To go on with it: tightloop train --resume {}", file,
                      shell_word(file));
  if (const auto source = source_by_name(file); source && there && holds_conversations(file))
    throw usage_error(
        "'{}' is not a recipe, a YAML file of settings. It holds conversations. To fine-tune a model on it: "
        "tightloop train configs/finetune.yaml --train.init_from MODEL --data.train {}",
        file, shell_word(file));
  else if (source)
    throw usage_error(
        "'{}' is not a recipe, a YAML file of settings. To learn from it: tightloop train "
        "configs/text.yaml --data.train {}{}",
        file, shell_word(file),
        source == DataSource::kText ? "" : fmt::format(" --data.source {}", name_of(*source)));
  if (is_folder(file))
    throw usage_error(
        "'{}' is a folder. Name a recipe and the files: tightloop train configs/text.yaml --data.train {}",
        file, shell_word((fs::path(file) / "").parent_path().string() + "/*"));
  if (there) return;
  const fs::path folder = fs::path(file).has_parent_path() ? fs::path(file).parent_path() : "configs";
  std::vector<std::string> names;
  if (is_folder(folder))
    for (const fs::path& entry : folder_entries(folder))
      if (entry.extension() == ".yaml") names.push_back(entry.stem().string());
  const auto guess = nearest(fs::path(file).stem().string(), names);
  const fs::path here = fs::path(file).is_absolute() ? "" : fs::current_path(failure);
  throw usage_error("there is no recipe '{}'{}.{}", file,
                    here.empty() ? "" : fmt::format(" in '{}'", here.string()),
                    guess ? fmt::format(" Did you mean '{}'?", (folder / (*guess + ".yaml")).string()) : "");
}

/// A model cannot start from weights of other sizes.
void refuse_other_sizes(const std::string& parent, ModelConfig was, ModelConfig is) {
  static const std::set<std::string> sizes{
      "family", "depth",      "layers",  "width",      "heads",          "kv_heads",         "head_size",
      "ffn",    "vocab_size", "experts", "expert_ffn", "encoder_layers", "source_vocab_size"};
  Fields before, now;
  was.describe(before), is.describe(now);
  std::vector<std::string> lines;
  for (size_t i = 0; i < now.all().size(); ++i) {
    const Field &old_field = before.all()[i], &field = now.all()[i];
    if (sizes.contains(field.name()) && field.text() != old_field.text() && field.text() != "0" &&
        old_field.text() != "0")
      lines.push_back(fmt::format("model.{}: was {}, is {}", field.name(), old_field.text(), field.text()));
  }
  if (lines.empty()) return;
  throw usage_error(
      "the model in '{}' (train.init_from) has other sizes than the recipe asks for: {}. Leave them out of "
      "the "
      "recipe: the model brings its own.",
      parent, fmt::join(lines, "; "));
}

/// Rows that are longer than the parent's context, which the recipe leaves as it was, make it longer; not
/// where positions are learned or windows depend on it. Gives the sentence about it.
std::string widen_context(Recipe& recipe, const ModelConfig& parent) {
  const int64_t was = recipe.model.context;
  const Family& family = family_of(recipe.model);
  if (was == 0 || was != parent.context || recipe.data.seq_len <= was || recipe.model.translates() ||
      family.has.learned_positions || family.window)
    return {};
  recipe.model.context = recipe.data.seq_len;
  return fmt::format("The model's context grows from {} to {} tokens, the length of a row.", was,
                     recipe.model.context);
}

/// Nor from weights that another tokenizer's ids were learned with.
void refuse_other_tokenizer(const std::string& from, const SavedModel& parent, const Recipe& recipe) {
  const fs::path own = parent.tokenizer_path(), given = recipe.tokenizer.path;
  if (own.empty() || given.empty() || own == given || recipe.model.translates()) return;
  if (load_tokenizer(given)->fingerprint() == parent.tokenizer()->fingerprint()) return;
  throw usage_error(
      "the model in '{}' (train.init_from) was trained with another tokenizer than '{}': its weights stand "
      "for "
      "other tokens. Leave tokenizer.path out, and its own is taken over.",
      from, given.string());
}

}  // namespace

std::string recipe_file(const std::string& name) {
  std::error_code refused;  // whoever reads it says why
  if (fs::path(name).is_absolute() || fs::exists(name, refused) || refused) return name;
  const fs::path installed = (program_folder() / "../share/tightloop" / name).lexically_normal();
  return path_exists(installed) ? installed.string() : name;
}

std::string follow_depth(Recipe& recipe, const Config& config) {
  const auto processes = rendezvous_from_environment();
  const int64_t world = recipe.world = processes ? processes->world : 1;
  const std::string sentence = turns_depth_dial(recipe, config) ? resolve_depth(recipe, config, world) : "";
  // A step that is no whole number of micro-batches is for whoever trains to refuse.
  const int64_t pass = recipe.train.micro_batch * recipe.data.seq_len * world;
  if (!recipe.model.translates() && pass > 0 && recipe.train.step_tokens % pass == 0)
    resolve_accumulate(recipe.train, recipe.data.seq_len, world);
  return sentence;
}

Recipe read_recipe(const std::string& name, const Settings& settings, std::vector<std::string>* notes) {
  const std::string file = recipe_file(name);
  refuse_what_is_no_recipe(file);
  const auto read_onto = [&](Recipe recipe, bool whole) {
    Config config = recipe.bind();
    config.load(file);
    config.apply(settings);
    prefer_command_line(recipe.train, config);
    if (!whole) return recipe;
    // What the recipe says about its own files says nothing about a user's.
    DataConfig& data = recipe.data;
    if (config.commanded("data.train") || config.commanded("data.mixture")) data.missing.clear();
    if (!data.missing.empty())
      for (const auto& [name, patterns] : {std::pair{"data.train_target", &data.train_target},
                                           {"data.val", &data.val},
                                           {"data.val_target", &data.val_target}})
        if (config.commanded(name))
          for (const std::string& pattern : *patterns) expand_glob(pattern);  // which says what is not there
    // The sizes of a model that is there already are its own.
    if (!recipe.train.init_from.empty() && recipe.model.leaves_sizes_open()) recipe.model.preset.clear();
    if (data.source == DataSource::kAuto)
      require_files(data);  // nobody can look into files that are not there
    const std::vector<std::string> about_source = resolve_source(recipe, config);
    for (const std::string& note : about_source)
      if (!notes) log::info("{}", note);
    const std::string depth = follow_depth(recipe, config);
    const std::string sizes = has_auto_sizes(recipe) ? resolve_sizes(recipe, config) : "";
    if (notes) {
      *notes = about_source;
      for (const std::string& note : {depth, sizes})
        if (!note.empty()) notes->push_back(note);
    }
    if (recipe.data.seq_len < 2)
      throw usage_error("data.seq_len is {}; a row has at least 2 tokens.", recipe.data.seq_len);
    return recipe;
  };
  const Recipe alone = read_onto({}, /*whole=*/false);
  refuse_other_encodings(file, settings);
  if (alone.train.init_from.empty()) return read_onto({}, /*whole=*/true);
  const std::string from = existing_run(alone.train.init_from, fs::path(file).parent_path());
  const SavedModel parent(from);
  Recipe underneath;
  underneath.model = parent.recipe().model;
  underneath.tokenizer.path = parent.tokenizer_path().string();
  underneath.chat = parent.recipe().chat;
  underneath.chat.template_path.clear();  // it is beside the parent's tokenizer
  Recipe recipe = read_onto(std::move(underneath), /*whole=*/true);
  recipe.train.init_from = from;
  if (const std::string sentence = widen_context(recipe, parent.recipe().model); !sentence.empty()) {
    if (notes)
      notes->push_back(sentence);
    else
      log::info("{}", sentence);
  }
  refuse_other_sizes(from, parent.recipe().model, recipe.model);
  refuse_other_tokenizer(from, parent, recipe);
  return recipe;
}

void require_files(const DataConfig& data) {
  if (data.missing.empty()) return;
  std::vector<DataConfig> sources{data};
  if (!data.mixture.empty()) {
    sources.clear();
    for (const MixtureEntry& entry : parse_mixture(data)) sources.push_back(entry.data);
  }
  const char* own = data.mixture.empty() ? "--data.train FILE" : "--data.mixture ENTRIES";
  for (const DataConfig& source : sources)
    for (const auto* patterns : {&source.train, &source.train_target, &source.val, &source.val_target})
      for (const std::string& pattern : *patterns)
        if (!source.generated() && matches_of(pattern).empty())
          throw data_error("'{}' is not there. {} Files of yours instead: {}.", pattern, data.missing, own);
}

void resolve_model(Recipe& recipe) {
  ModelConfig& model = recipe.model;
  const TokenizerConfig& tokenizer = recipe.tokenizer;
  const auto size = [&](const std::string& path) {
    return path.empty() ? tokenizer.vocab_size : load_tokenizer(path)->vocab_size();
  };
  if (model.translates()) {
    const bool known = model.vocab_size > 0 && (model.share_embeddings || model.source_vocab_size > 0);
    const int64_t source = known ? 0 : size(tokenizer.path),
                  target = known || tokenizer.target_path.empty() ? source : size(tokenizer.target_path);
    return model.resolve_pair(source, target, recipe.data.seq_len);
  }
  model.resolve(model.vocab_size > 0 ? 0 : size(tokenizer.path), recipe.data.seq_len);
}

}  // namespace tightloop::cli
