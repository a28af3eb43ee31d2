#include "cli/wrong_use.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/files.h"
#include "core/terminal/terminal.h"

namespace tightloop::cli {

namespace {

using Names = std::vector<std::string>;

// What other programs call a verb.
const std::map<std::string, std::string>& other_verbs() {
  static const std::map<std::string, std::string> verbs{
      {"finetune", "train configs/finetune.yaml --train.init_from MODEL"},
      {"fine-tune", "train configs/finetune.yaml --train.init_from MODEL"},
      {"sft", "train configs/finetune.yaml --train.init_from MODEL"},
      {"lora", "train configs/finetune.yaml --train.init_from MODEL --lora.rank 8"},
      {"pretrain", "train RECIPE"},
      {"pre-train", "train RECIPE"},
      {"training", "train RECIPE"},
      {"run", "train RECIPE"},
      {"start", "train RECIPE"},
      {"resume", "train --resume RUN"},
      {"continue", "train --resume RUN"},
      {"sample", "generate"},
      {"infer", "generate"},
      {"inference", "generate"},
      {"predict", "generate"},
      {"complete", "generate"},
      {"completion", "generate"},
      {"prompt", "generate"},
      {"talk", "chat"},
      {"ask", "chat"},
      {"evaluate", "eval"},
      {"evaluation", "eval"},
      {"test", "eval"},
      {"validate", "eval"},
      {"perplexity", "eval"},
      {"convert", "export"},
      {"save", "export"},
      {"merge", "export"},
      {"tokenize", "tokenizer encode"},
      {"encode", "tokenizer encode"},
      {"decode", "tokenizer decode"},
      {"preprocess", "prepare"},
      {"settings", "config"},
      {"options", "config"},
      {"list", "runs"},
      {"ls", "runs"},
      {"ps", "runs"},
      {"status", "runs"},
      {"history", "runs"},
      {"diff", "runs --compare ONE OTHER"},
      {"compare", "runs --compare ONE OTHER"},
      {"watch", "top"},
      {"monitor", "top"},
      {"progress", "top"},
      {"params", "model show"},
      {"show", "model show"},
      {"info", "doctor"},
      {"env", "doctor"},
      {"check", "doctor"},
      {"benchmark", "bench step"},
      {"profile", "bench step"},
      {"memory", "fit"},
      {"estimate", "fit"},
      {"help", "--help"},
      {"version", "--version"}};
  return verbs;
}

// What other programs call an option, and what it may be here: the first that the verb has.
const std::vector<std::pair<Names, Names>>& other_options() {
  static const std::vector<std::pair<Names, Names>> options{
      {{"max-new-tokens", "max-length", "max-gen-len", "max-len", "num-tokens", "n-predict", "num-predict",
        "length", "n-tokens", "tokens", "new-tokens"},
       {"--max-tokens", "--new-tokens", "--length"}},
      {{"temp", "t"}, {"--temperature"}},
      {{"topk", "k"}, {"--top-k"}},
      {{"topp", "p", "nucleus"}, {"--top-p"}},
      {{"repeat-penalty", "rep-penalty"}, {"--repetition-penalty"}},
      {{"checkpoint", "ckpt", "ckpt-path", "model-path", "model-name-or-path", "weights", "path", "folder",
        "dir", "checkpoint-path", "checkpoint-dir", "m", "r", "load", "name", "model-dir", "out-dir"},
       {"--run", "--resume"}},
      {{"num-samples", "n-samples", "num-return-sequences", "samples", "count"}, {"--n", "--samples"}},
      {{"text", "input", "start", "query", "question", "instruction", "message", "i"},
       {"--prompt", "--input"}},
      {{"prompt-file", "prompts-file", "input-file", "file", "f"}, {"--prompts", "--input"}},
      {{"data", "dataset", "val-data", "text-file", "train-file"}, {"--input", "--data.train"}},
      {{"stop-sequence", "stop-sequences", "stop-token", "stop-string"}, {"--stop"}},
      {{"batch-size", "rows", "b", "bs"}, {"--batch", "--batch-tokens"}},
      {{"output", "out", "o", "output-dir", "dest", "destination", "save-dir"}, {"--to", "--output"}},
      {{"to", "output-path"}, {"--output", "--to"}},
      {{"random-seed", "s"}, {"--seed"}},
      {{"system-prompt"}, {"--system"}},
      {{"dtype", "torch-dtype"}, {"--dtype", "--precision"}},
      {{"gpu", "cuda", "cpu"}, {"--device"}},
      {{"beam-size", "num-beams", "beams"}, {"--beam"}},
      {{"lenpen", "alpha"}, {"--length-penalty"}},
      {{"reference", "references", "refs"}, {"--ref"}},
      {{"hypothesis", "hypotheses", "candidate", "sys"}, {"--hyp"}},
      {{"context-length", "block-size", "max-seq-len", "seq-len"}, {"--window"}},
      {{"vocab", "size"}, {"--vocab-size"}},
      {{"special-tokens"}, {"--special"}},
      {{"force", "replace"}, {"--overwrite"}},
      {{"continue", "restart"}, {"--resume"}},
      {{"vram", "gpu-memory", "gb", "gib"}, {"--memory"}},
      {{"num-steps", "max-steps", "iters"}, {"--steps"}}};
  return options;
}

std::string dashed(std::string name) {
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  for (char& letter : name) {
    if (letter >= 'A' && letter <= 'Z') letter += 'a' - 'A';
    if (letter == '_') letter = '-';
  }
  return name;
}

Names verb_names(const CLI::App& parent) {
  Names names;
  for (const auto* one : parent.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(one->get_name());
  return names;
}

Names option_names(const CLI::App& verb) {
  Names names;
  for (const auto* one : verb.get_options())
    for (const auto& name : one->get_lnames()) names.push_back(name);
  return names;
}

bool has_option(const CLI::App& verb, const std::string& option) {
  return verb.get_option_no_throw(option) != nullptr;
}

std::optional<std::string> meant_option(const CLI::App& verb, const std::string& name,
                                        const Config* settings) {
  for (const auto& [others, ours] : other_options())
    if (std::ranges::count(others, name))
      for (const auto& one : ours)
        if (has_option(verb, one) || (settings && one.find('.') != std::string::npos)) return one;
  if (const auto own = nearest(name, option_names(verb))) return "--" + *own;
  if (!settings) return {};
  const auto setting = settings->guess(name);
  return setting ? std::optional("--" + *setting) : std::nullopt;
}

}  // namespace

std::string name_of(const CLI::App& verb) {
  return verb.get_parent() ? name_of(*verb.get_parent()) + " " + verb.get_name() : "tightloop";
}

bool is_recipe_name(const std::string& word) { return word.ends_with(".yaml") || word.ends_with(".yml"); }

Error unknown_verb(const CLI::App& parent, const std::string& word) {
  const std::string name = name_of(parent);
  if (!parent.get_parent()) {
    if (is_recipe_name(word))
      return usage_error("'{}' is a recipe. To train by it: tightloop train {}", word, shell_word(word));
    if (const auto other = other_verbs().find(dashed(word)); other != other_verbs().end())
      return usage_error("there is no verb '{}'. Did you mean: tightloop {}?", word, other->second);
    if (is_file(word))
      return usage_error(
          "'{}' is a file, and what to do with it is not said. To learn from it: tightloop train "
          "configs/text.yaml --data.train {}",
          word, shell_word(word));
  }
  const auto guess = nearest(word, verb_names(parent));
  if (guess) return usage_error("there is no verb '{}'. Did you mean: {} {}?", word, name, *guess);
  return usage_error("there is no verb '{}'. '{} --help' lists them: {}.", word, name,
                     fmt::join(verb_names(parent), ", "));
}

Error missing_verb(const CLI::App& parent) {
  return usage_error("say what to do: {} and one of {}. '{} --help' says more.", name_of(parent),
                     fmt::join(verb_names(parent), ", "), name_of(parent));
}

Error unknown_option(const CLI::App& verb, const std::string& option, const Config* settings) {
  const auto meant = meant_option(verb, dashed(option), settings);
  return usage_error("'{}' has no option {}.{} '{} --help' lists them.", name_of(verb), option,
                     meant ? fmt::format(" Did you mean {}?", *meant) : "", name_of(verb));
}

Error unexpected_words(const CLI::App& verb, const std::vector<std::string>& words, const std::string& before,
                       const std::string& value) {
  static const std::set<std::string> texts{"--prompt", "--system", "--stop"};
  const std::string& word = words.front();
  if (texts.contains(before))
    return usage_error("a text with spaces needs quotes: {} {}", before,
                       shell_word(fmt::format("{} {}", value, fmt::join(words, " "))));
  const bool is_run =
      path_exists(fs::path(word) / "config.yaml") || path_exists(fs::path("runs") / word / "config.yaml");
  if (is_run && has_option(verb, "--run"))
    return usage_error("'{}' was not expected here. To use that run: {} --run {}", word, name_of(verb),
                       shell_word(word));
  if (has_option(verb, "--prompt"))
    return usage_error("'{}' was not expected here. The text to continue is given as: --prompt {}", word,
                       shell_word(fmt::format("{}", fmt::join(words, " "))));
  if (before.find('.') != std::string::npos)
    return usage_error("'{}' was not expected after {} {}. A value with spaces needs quotes: {} {}", word,
                       before, value, before, shell_word(fmt::format("{} {}", value, fmt::join(words, " "))));
  if (is_recipe_name(word))
    return usage_error(
        "'{}' was not expected here: one recipe is enough. Its settings can be changed with --section.key "
        "value.",
        word);
  if (verb.get_name() == "train" && is_file(word)) {
    std::vector<std::string> in_shell;
    for (const std::string& file : words) in_shell.push_back(shell_word(file));
    return usage_error("'{}' was not expected here. Files to learn from: --data.train {}", word,
                       fmt::join(in_shell, " "));
  }
  return usage_error("'{}' was not expected here. '{} --help' shows what it takes.", word, name_of(verb));
}

Error wrong_value(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* verb = &app;
  while (!verb->get_subcommands().empty()) verb = verb->get_subcommands().front();
  std::string what = error.what();
  if (what.starts_with("RECIPE is required") || what.starts_with("CONFIG is required"))
    return usage_error("name a recipe, as in: {} configs/text.yaml", name_of(*verb));
  if (const std::string start = "Could not convert: "; what.starts_with(start)) {
    const size_t equals = what.find(" = ");
    what = fmt::format("{}: '{}' is not a number", what.substr(start.size(), equals - start.size()),
                       what.substr(equals + 3));
  } else if (const size_t among = what.find(" not in {"); among != std::string::npos) {
    const size_t colon = what.find(": ");
    std::string choices = what.substr(among + 9, what.rfind('}') - among - 9);
    for (size_t at = 0; (at = choices.find(',', at)) != std::string::npos; at += 2)
      choices.insert(at + 1, " ");
    what = fmt::format("{}: '{}' is not one of {}", what.substr(0, colon),
                       what.substr(colon + 2, among - colon - 2), choices);
  } else if (const size_t most = what.find(": At Most 1 required"); most != std::string::npos) {
    what = what.substr(0, most) + " is given more than once";
  } else if (const size_t flag = what.find(" was given a disallowed flag"); flag != std::string::npos) {
    what = what.substr(0, flag) + " takes no value";
  }
  return usage_error("{}. '{} --help' says more.", what, name_of(*verb));
}

}  // namespace tightloop::cli
