#include "infer/model_card.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/counted.h"
#include "core/files.h"
#include "core/version.h"
#include "model/family.h"
#include "train/report/metric_table.h"
#include "train/run/checkpoint_name.h"
#include "train/run/run_settings.h"
#include "train/watch/run_log.h"

namespace tightloop {

namespace {

using CardJson = nlohmann::json;

std::string quoted(const std::string& text) {
  return CardJson(text).dump(-1, ' ', false, CardJson::error_handler_t::replace);
}

/// A cell of a table.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string row(const std::string& name, const std::string& value) {
  return fmt::format("| {} | {} |\n", name, cell(value));
}

/// The words of a setting that are paths, without their folders: a card is made to be shown.
std::string without_folders(const std::string& value) {
  std::string out, word;
  const auto flush = [&] {
    out += word.substr(word.rfind('/') + 1);
    word.clear();
  };
  for (const char c : value) {
    if (std::string_view(" ,=[]\"'").find(c) == std::string_view::npos) {
      word += c;
    } else {
      flush();
      out += c;
    }
  }
  flush();
  return out;
}

std::string front_matter(const SavedModel& saved, bool theirs, bool trained) {
  std::string text = "---\n";
  text +=
      fmt::format("library_name: {}\npipeline_tag: text-generation\n", theirs ? "transformers" : "tightloop");
  if (const auto base = saved.metadata().find("base_model"); trained && base != saved.metadata().end())
    text += fmt::format("base_model: {}\n", quoted(base->get<std::string>()));
  return text + "tags:\n- tightloop\n---\n\n";
}

std::string how_to_load(const std::string& name, bool theirs, bool chat) {
  if (!theirs)
    return fmt::format(
        "## Use\n\ntransformers does not have this architecture; Tightloop reads the folder:\n\n```\n"
        "tightloop {} --model {}\n```\n\n",
        chat ? "chat" : "generate", name);
  const char* ask =
      chat ? "prompt = tokenizer.apply_chat_template([{\"role\": \"user\", \"content\": \"Hi\"}], "
             "add_generation_prompt=True,\n"
             "                                       return_tensors=\"pt\", return_dict=True)\n"
           : "prompt = tokenizer(\"Once\", return_tensors=\"pt\")\n";
  return fmt::format(
      "## Use\n\n```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
      "tokenizer = AutoTokenizer.from_pretrained({0})\nmodel = AutoModelForCausalLM.from_pretrained({0})\n"
      "{1}print(tokenizer.decode(model.generate(**prompt, max_new_tokens=100)[0]))\n```\n\n",
      quoted(name), ask);
}

/// Versions, machine and steps: what events.jsonl says of the processes that trained up to a step.
std::string training_of(const SavedModel& saved, const RunFolder& run) {
  const CardJson& metadata = saved.metadata();
  std::string text = "## Training\n\n| | |\n|---|---|\n";
  text += row("run", fs::absolute(run.root()).lexically_normal().filename().string());
  if (metadata.contains("stage")) text += row("stage", text_in(metadata, "stage"));
  if (metadata.contains("parent")) {
    const CardJson& parent = metadata["parent"];
    const int64_t step = count_in(parent, "step");
    text += row("started from",
                without_folders(text_in(parent, "path")) + (step > 0 ? fmt::format(", step {}", step) : ""));
  }
  text += row("steps", fmt::format("{} of {}", saved.step(), saved.recipe().train.steps));
  if (metadata.contains(kAveraged))
    text += row("averaged over the checkpoints of steps",
                fmt::format("{}", fmt::join(metadata[kAveraged].get<std::vector<int64_t>>(), ", ")));
  std::vector<std::string> versions, machines;
  const auto add = [](std::vector<std::string>& texts, const std::string& one) {
    if (!one.empty() && std::ranges::find(texts, one) == texts.end()) texts.push_back(one);
  };
  for (const CardJson& event : JsonLinesReader(run.events()).read()) {
    if (!event.contains("machine") || !event["machine"].is_object()) continue;
    if (count_in(event, "global_step") >= saved.step()) continue;
    const CardJson& machine = event["machine"];
    add(versions, text_in(machine, "tightloop"));
    const int64_t processes = count_in(machine, "processes");
    add(machines, fmt::format("{}, {}{}", text_in(machine, "device"), text_in(machine, "precision"),
                              processes > 1 ? fmt::format(", {} processes", processes) : ""));
  }
  if (!machines.empty()) text += row("on", fmt::format("{}", fmt::join(machines, "; ")));
  if (!versions.empty()) text += row("trained by Tightloop", fmt::format("{}", fmt::join(versions, ", ")));
  return text + row("exported by Tightloop", kVersion) + "\n";
}

std::string data_of(const SavedModel& saved) {
  const CardJson& metadata = saved.metadata();
  std::string text;
  const CardJson files = metadata.value("data", CardJson::object()).value("files", CardJson::array());
  if (!files.empty()) text += "| file | read for | bytes |\n|---|---|---|\n";
  for (const CardJson& file : files)
    text += fmt::format("| {} | {} | {} |\n", cell(fs::path(text_in(file, "path")).filename().string()),
                        cell(text_in(file, "part")), count_in(file, "bytes"));
  if (files.empty() && saved.recipe().data.generated())
    text +=
        fmt::format("Generated by Tightloop: `data.source` is `{}`.\n", name_of(saved.recipe().data.source));
  if (metadata.contains("documents")) {
    const CardJson& counts = metadata["documents"];
    if (!text.empty()) text += "\n";
    text += "| part | documents | tokens |\n|---|---|---|\n";
    for (const auto& [part, name] : {std::pair{"train", "training"}, {"val", "held out"}})
      if (counts.contains(part))
        text += fmt::format("| {} | {} | {} |\n", name, count_in(counts[part], "documents"),
                            count_in(counts[part], "tokens"));
    if (const int64_t bad = count_in(counts, "bad"); bad > 0)
      text += fmt::format("\n{} could not be used and {} left out.\n", counted(bad, "record"),
                          bad == 1 ? "was" : "were");
  }
  return text.empty() ? text : "## Data\n\n" + text + "\n";
}

std::string_view help_of(const std::string& name) {
  const Metric* metric = find_metric(name);
  if (!metric) metric = find_metric(name.substr(0, name.rfind('/')) + "/<source>");
  const std::string_view help = metric ? metric->help : std::string_view();
  return help.substr(0, help.find("; see below"));  // in docs/metrics.md
}

/// The last value of each number up to the checkpoint's step, with the step it is of.
std::string metrics_of(const SavedModel& saved, const RunFolder& run) {
  static const std::set<std::string, std::less<>> kTold{
      "training/loss", "training/mean_loss", "training/bits_per_byte", "training/accuracy", "training/epoch"};
  std::map<std::string, std::pair<std::string, int64_t>> last;
  for (const CardJson& line : JsonLinesReader(run.metrics()).read()) {
    const int64_t step = count_in(line, "global_step");
    if (step > saved.step()) continue;
    for (const auto& [name, value] : line.items()) {
      const bool by_source = name.starts_with("training/loss/") || name.starts_with("training/accuracy/");
      if (!name.starts_with("eval/") && !by_source && !kTold.contains(name)) continue;
      if (value.is_number_integer()) last[name] = {value.dump(), step};
      if (value.is_number_float()) last[name] = {fmt::format("{:.6g}", value.get<double>()), step};
      if (value.is_string()) last[name] = {value.get<std::string>(), step};
    }
  }
  std::string text;
  for (const auto& [name, value] : last)
    text +=
        fmt::format("| {} | {} | {} | {} |\n", cell(name), cell(value.first), value.second, help_of(name));
  if (text.empty()) return text;
  return "## Metrics\n\nThe last of each up to the step of these weights.\n\n"
         "| metric | value | at step | what it is |\n|---|---|---|---|\n" +
         text + "\n";
}

std::string recipe_of(const SavedModel& saved) {
  static const std::set<std::string, std::less<>> kAside{"run", "log", "wandb", "eval", "ops"};
  static const std::set<std::string, std::less<>> kPaths{
      "data.train",     "data.val",      "data.train_target", "data.val_target",
      "data.cache",     "data.mixture",  "train.init_from",   "tokenizer.target_path",
      "tokenizer.path", "chat.template", "eval.suite"};
  std::string text, section;
  for (const ChangedSetting& setting : changed_settings(Recipe(), saved.recipe())) {
    const size_t dot = setting.key.find('.');
    const std::string in = setting.key.substr(0, dot);
    if (kAside.contains(in) || setting.key == "data.missing" || setting.key == "tokenizer.path") continue;
    if (in != section) text += in + ":\n";
    section = in;
    text += fmt::format("  {}: {}\n", setting.key.substr(dot + 1),
                        kPaths.contains(setting.key) ? without_folders(setting.is) : setting.is);
  }
  if (text.empty()) return text;
  return "## Recipe\n\nThe settings that are not Tightloop's defaults, sizes and steps as they were worked "
         "out.\n\n```yaml\n" +
         text + "```\n";
}

}  // namespace

std::string model_card(const SavedModel& saved, const LanguageModel& model, const std::string& name,
                       bool chat) {
  const ModelConfig& config = model.config();
  const bool theirs = !family_of(config).hugging_face.own(), trained = saved.is_run();
  std::string text = front_matter(saved, theirs, trained) + "# " + name + "\n\n";
  text += fmt::format("A model of the family {}: {} parameters, vocabulary {}, context {}.\n\n",
                      config.family, model.parameters().count(), config.vocab_size, config.context);
  text += how_to_load(name, theirs, chat);
  if (!trained) return text;
  const RunFolder run(checkpoint_place(saved.path()).run);  // its log files may be missing
  return text + training_of(saved, run) + data_of(saved) + metrics_of(saved, run) + recipe_of(saved);
}

}  // namespace tightloop
