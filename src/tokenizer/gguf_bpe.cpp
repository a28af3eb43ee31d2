#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/error.h"
#include "core/io/json_depth.h"
#include "core/log.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/hf_json.h"

namespace tightloop {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char *kPre = "tokenizer.ggml.pre", *kMerges = "tokenizer.ggml.merges",
                     *kOurs = "tightloop.tokenizer", *kAddsBegin = "tokenizer.ggml.add_bos_token";

/// How llama.cpp cuts text under a name. The first of equal ones is written.
struct NamedSplits {
  const char* name;
  std::vector<SplitRule> splits;
  bool ignore_merges = false, nfc = false;
};

const std::vector<NamedSplits>& named_splits() {
  using enum SplitPattern;
  static const std::vector<NamedSplits> all = [] {
    const std::vector<SplitRule> gpt2{{kGpt2, ""}}, qwen{{kQwen, ""}}, llama3{{kCl100kHf, ""}},
        gpt4o{{kO200k, ""}}, digit{{kDigit, ""}, {kGpt2, ""}};
    const std::vector<SplitRule> usual{
        {kNone, R"([\p{P}\$\+<=>\^~\|]+)"}, {kGpt2, ""}, {kDigits, ""}, {kNone, "[0-9][0-9][0-9]"}};
    std::vector<NamedSplits> list{{"gpt-2", gpt2},
                                  {"qwen2", qwen, false, true},
                                  {"llama-bpe", llama3, true},
                                  {"dbrx", llama3},
                                  {"gpt-4o", gpt4o},
                                  {"smollm", digit},
                                  {"default", usual}};
    for (const char* name :
         {"phi-2", "gigachat", "mpt", "olmo", "jais", "exaone4", "trillion", "modern-bert"})
      list.push_back({name, gpt2});
    for (const char* name : {"deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan", "grok-2"})
      list.push_back({name, qwen});
    for (const char* name : {"llama3", "llama-v3", "falcon3", "pixtral", "lfm2", "glm4"})
      list.push_back({name, llama3, true});
    for (const char* name : {"smaug-bpe", "chatglm-bpe"}) list.push_back({name, llama3});
    for (const char* name : {"starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"})
      list.push_back({name, digit});
    for (const char* name : {"llama4", "minimax-m2"}) list.push_back({name, gpt4o});
    return list;
  }();
  return all;
}

bool same_rules(const std::vector<SplitRule>& a, const std::vector<SplitRule>& b) {
  return std::ranges::equal(a, b, [](const SplitRule& one, const SplitRule& other) {
    return one.regex == other.regex && (!one.regex.empty() || one.pattern == other.pattern);
  });
}

bool only(const std::vector<SplitRule>& splits, SplitPattern pattern) {
  return same_rules(splits, {{pattern, ""}});
}

/// llama.cpp's name for how a tokenizer cuts text.
const NamedSplits& name_of_splits(const BpeModel& model) {
  const bool gpt4 = only(model.splits, SplitPattern::kCl100k);
  const std::vector<SplitRule> splits =
      gpt4 ? std::vector<SplitRule>{{SplitPattern::kCl100kHf, ""}} : model.splits;
  for (const NamedSplits& known : named_splits()) {
    if (!same_rules(known.splits, splits) || known.ignore_merges != model.ignore_merges) continue;
    if (gpt4)
      log::warn(
          "GGUF: llama.cpp has no split pattern of GPT-4 as tiktoken has it; the nearest differs where a "
          "text ends in line ends and spaces, which become other tokens there.");
    if (only(splits, SplitPattern::kO200k))
      log::warn(
          "GGUF: llama.cpp's form of the split pattern of GPT-4o knows capital letters of English alone: "
          "words with others, such as É, may become other tokens there.");
    return known;
  }
  std::string pattern;
  for (const SplitRule& rule : model.splits)
    pattern += (pattern.empty() ? "" : ", then ") +
               (rule.regex.empty() ? std::string(regex_of(rule.pattern)) : rule.regex);
  if (model.splits.size() == 1 && pattern.empty()) pattern = "none: the text is one piece";
  throw usage_error(
      "llama.cpp has no name for this tokenizer's split pattern{}, and with another one it would make other "
      "tokens: it cannot be exported as GGUF. The pattern: {}. --format hf writes a folder.",
      model.ignore_merges ? " together with ignore_merges" : "", pattern);
}

void warn_of_differences(const BpeModel& model) {
  if (model.nfc)
    log::warn(
        "GGUF: llama.cpp does not normalize text to NFC, as this tokenizer does: texts with decomposed "
        "characters become other tokens there.");
  if (model.same_rank)
    log::warn(
        "GGUF: all merges to one token have one rank in this tokenizer (tiktoken), in llama.cpp each its "
        "own: rare words may become other tokens there.");
  if (model.add_prefix_space)
    throw usage_error(
        "this tokenizer puts a space before each text (add_prefix_space), which llama.cpp's BPE does not: it "
        "cannot be exported as GGUF.");
  for (const AddedToken& token : model.added)
    if (token.lstrip || token.rstrip || token.single_word)
      log::warn(
          "GGUF: the token '{}' takes white space beside it or stands alone as a word, which llama.cpp does "
          "not know: texts with it become other tokens there.",
          token.content);
}

/// What llama.cpp has no place for, and what it means where it is not said.
Json own_part(const BpeModel& model, const std::string& end_of_text, const NamedSplits& known) {
  Json json = Json::object();
  if (model.nfc != known.nfc) json["nfc"] = model.nfc;
  if (only(model.splits, SplitPattern::kCl100k)) json["pattern"] = name_of(SplitPattern::kCl100k);
  if (!model.parse_added) json["parse_added"] = false;
  if (model.same_rank) json["same_rank"] = true;
  if (model.unknown >= 0) json["unknown"] = model.unknown;
  if (!model.post_processor.empty()) json["post_processor"] = model.post_processor;
  if (!end_of_text.empty()) json["end_of_text"] = end_of_text;
  for (const AddedToken& token : model.added) {
    Json flags = Json::array();
    if (token.normalized) flags.push_back("normalized");
    if (token.single_word) flags.push_back("single_word");
    if (token.lstrip) flags.push_back("lstrip");
    if (token.rstrip) flags.push_back("rstrip");
    if (!flags.empty()) json["added"][std::to_string(token.id)] = flags;
  }
  return json;
}

void read_own_part(const GgufFile& file, BpeModel& model) {
  const GgufValue* value = file.metadata().find(kOurs);
  if (!value) return;
  const auto wrong = [&] { return checkpoint_error("'{}': {} is damaged.", file.path().string(), kOurs); };
  if (!value->text()) throw wrong();
  try {
    const Json json = Json::parse(shallow_json(*value->text()));
    model.nfc = json.value("nfc", model.nfc);
    if (json.contains("pattern"))
      model.splits = {{choice_named<SplitPattern>(json["pattern"].get<std::string>()).value(), ""}};
    model.parse_added = json.value("parse_added", true);
    model.same_rank = json.value("same_rank", false);
    model.unknown = json.value("unknown", -1);
    if (model.unknown >= std::ssize(model.tokens)) throw wrong();
    model.post_processor = json.value("post_processor", "");
    if (!model.post_processor.empty() && !Json::accept(shallow_json(model.post_processor))) throw wrong();
    model.end_of_text = json.value("end_of_text", "");
    if (!json.contains("added")) return;
    for (AddedToken& token : model.added)
      for (const auto& flag : json["added"].value(std::to_string(token.id), Json::array())) {
        token.normalized |= flag == "normalized";
        token.single_word |= flag == "single_word";
        token.lstrip |= flag == "lstrip";
        token.rstrip |= flag == "rstrip";
      }
  } catch (const nlohmann::json::exception&) {
    throw wrong();
  } catch (const std::bad_optional_access&) {
    throw wrong();
  }
}

/// Hugging Face's form of "this token stands before each text".
std::string begin_processor(const std::string& token, int64_t id) {
  const Json special{{"SpecialToken", {{"id", token}, {"type_id", 0}}}},
      text{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, second{{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  return Json{{"type", "TemplateProcessing"},
              {"single", Json::array({special, text})},
              {"pair", Json::array({special, text, second})},
              {"special_tokens",
               {{token, {{"id", token}, {"ids", Json::array({id})}, {"tokens", Json::array({token})}}}}}}
      .dump();
}

void read_merges(const GgufFile& file, const GgufTokenLists& lists, BpeModel& model) {
  const std::string path = file.path().string();
  const GgufValue* merges = file.metadata().find(kMerges);
  if (!merges || !merges->list || merges->kind != GgufKind::kString)
    throw checkpoint_error("'{}': {} must be a list of texts.", path, kMerges);
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < lists.texts.size(); ++id) ids.emplace(lists.texts[id], static_cast<int32_t>(id));
  for (const std::string& merge : merges->texts) {
    const size_t space = merge.find(' ', 1);
    if (space == merge.npos)
      throw checkpoint_error("'{}': the merge '{}' is not two tokens with a space between.", path, merge);
    const std::string left = merge.substr(0, space), right = merge.substr(space + 1);
    const auto l = ids.find(left), r = ids.find(right), both = ids.find(left + right);
    if (l == ids.end() || r == ids.end() || both == ids.end())
      throw checkpoint_error("'{}': the merge of '{}' and '{}' needs a token that is not in the vocabulary.",
                             path, left, right);
    for (const auto& one : {l, r, both}) {  // an added token may be made by merges, too
      BpeModel::Token& token = model.tokens[static_cast<size_t>(one->second)];
      auto bytes = from_byte_alphabet(one->first);
      if (token.kind == BpeModel::Token::kAbsent || !bytes)
        throw checkpoint_error(
            "'{}': the merge of '{}' and '{}' needs a token that is not in the vocabulary.", path, left,
            right);
      token = {std::move(*bytes), BpeModel::Token::kBytes};
    }
    model.merges.push_back({l->second, r->second, both->second});
  }
}

}  // namespace

void add_gguf_bpe(const BpeModel& model, const std::string& end_of_text, int64_t rows,
                  GgufMetadata& metadata) {
  const NamedSplits& known = name_of_splits(model);
  warn_of_differences(model);
  GgufTokenLists lists;
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    const BpeModel::Token& token = model.tokens[id];
    const bool bytes = token.kind == BpeModel::Token::kBytes, absent = token.kind == BpeModel::Token::kAbsent;
    lists.texts.push_back(absent ? gguf_filler(id) : bytes ? to_byte_alphabet(token.bytes) : token.bytes);
    // Text never becomes a token that is in no byte alphabet, unless it is an added one.
    lists.types.push_back(bytes ? GgufTokenType::kNormal : GgufTokenType::kUnused);
  }
  for (const AddedToken& token : model.added) {
    lists.texts[static_cast<size_t>(token.id)] = token.content;
    lists.types[static_cast<size_t>(token.id)] =
        token.special ? GgufTokenType::kControl : GgufTokenType::kUserDefined;
  }
  std::vector<std::string> merges;
  const auto written = [&](int32_t id) {
    const auto& text = lists.texts[static_cast<size_t>(id)];
    if (text != to_byte_alphabet(model.tokens[static_cast<size_t>(id)].bytes))
      throw usage_error(
          "the added token '{}' is also made by merges, which llama.cpp has no place for: the tokenizer "
          "cannot be exported as GGUF.",
          text);
    return text;
  };
  for (const MergeRule& rule : model.merges) {
    written(rule.result);
    merges.push_back(written(rule.left) + " " + written(rule.right));
  }
  metadata.add("tokenizer.ggml.model", GgufValue::of("gpt2"));
  metadata.add(kPre, GgufValue::of(known.name));
  add_gguf_token_lists(std::move(lists), rows, metadata);
  metadata.add(kMerges, GgufValue::of(std::move(merges)));
  metadata.add(kOurs, GgufValue::of(own_part(model, end_of_text, known).dump()));
}

BpeModel read_gguf_bpe(const GgufFile& file) {
  const std::string path = file.path().string();
  const GgufValue* pre = file.metadata().find(kPre);
  const std::string name = pre && pre->text() ? *pre->text() : "";
  const auto known = std::ranges::find(named_splits(), name, &NamedSplits::name);
  if (known == named_splits().end()) {
    std::vector<std::string_view> names;
    for (const NamedSplits& one : named_splits()) names.push_back(one.name);
    throw checkpoint_error(
        "'{}': {} is '{}', a split pattern that is not known here ({} are). Take the model's Hugging Face "
        "folder.",
        path, kPre, name, fmt::join(names, ", "));
  }
  const GgufTokenLists lists = read_gguf_token_lists(file);
  BpeModel model;
  model.splits = known->splits, model.ignore_merges = known->ignore_merges, model.nfc = known->nfc;
  model.tokens.resize(lists.texts.size());
  for (size_t id = 0; id < lists.texts.size(); ++id) {
    const std::string& text = lists.texts[id];
    const GgufTokenType type = lists.types[id];
    if (type == GgufTokenType::kUnused && text == gguf_filler(id)) continue;
    if (type == GgufTokenType::kNormal) {
      set_token(model, text, static_cast<int64_t>(id), path);
      continue;
    }
    model.tokens[id] = {text, BpeModel::Token::kVerbatim};
    if (type == GgufTokenType::kControl || type == GgufTokenType::kUserDefined)
      model.added.push_back(
          {.content = text, .id = static_cast<int32_t>(id), .special = type == GgufTokenType::kControl});
  }
  read_merges(file, lists, model);
  const GgufSpecialTokens special = read_gguf_special_tokens(file);
  const auto text_of = [&](int64_t id) {
    return id >= 0 && id < std::ssize(lists.texts) ? lists.texts[static_cast<size_t>(id)] : std::string();
  };
  if (file.metadata().find(kOurs)) {
    read_own_part(file, model);
  } else {
    model.end_of_text = text_of(special.end);
  }
  const GgufValue* adds = file.metadata().find(kAddsBegin);
  const bool begins = adds ? adds->flag().value_or(false) : known->ignore_merges;  // as llama.cpp takes it
  if (const std::string begin = text_of(special.begin);
      begins && !begin.empty() && model.post_processor.empty())
    model.post_processor = begin_processor(begin, special.begin);
  return model;
}

}  // namespace tightloop
