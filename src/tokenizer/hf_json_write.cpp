#include <nlohmann/json.hpp>

#include "core/files.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/hf_json.h"

namespace tightloop {

namespace {

using Json = nlohmann::ordered_json;

std::string written(const BpeModel::Token& token) {
  return token.kind == BpeModel::Token::kVerbatim ? token.bytes : to_byte_alphabet(token.bytes);
}

Json byte_level(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

Json pre_tokenizer(const BpeModel& model) {
  const bool only_gpt2 = model.splits.size() == 1 && model.splits[0].regex.empty() &&
                         model.splits[0].pattern == SplitPattern::kGpt2;
  if (only_gpt2 || model.add_prefix_space) return byte_level(model.add_prefix_space, only_gpt2);
  Json steps = Json::array();
  for (const SplitRule& rule : model.splits) {
    if (rule.regex.empty() && rule.pattern == SplitPattern::kNone) continue;
    const std::string regex = rule.regex.empty() ? std::string(regex_of(rule.pattern)) : rule.regex;
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  if (steps.empty()) return byte_level(false, false);
  steps.push_back(byte_level(false, false));
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

}  // namespace

std::string hf_config(const BpeModel& model) {
  Json config = Json::object();
  if (!model.end_of_text.empty()) config["eos_token"] = model.end_of_text;
  if (!model.parse_added) config["tightloop"]["parse_added"] = false;
  if (model.same_rank) config["tightloop"]["same_rank"] = true;
  if (config.empty()) return {};
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  return config.dump(2) + "\n";
}

void write_hf_json(const BpeModel& model, const std::filesystem::path& path) {
  Json added = Json::array();
  for (const AddedToken& token : model.added)
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", token.single_word},
                     {"lstrip", token.lstrip},
                     {"rstrip", token.rstrip},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  Json vocab = Json::object(), merges = Json::array();
  // Filled through the underlying vector: looking for an equal key each time would take quadratic time.
  auto& entries = vocab.get_ref<Json::object_t&>();
  for (size_t id = 0; id < model.tokens.size(); ++id)
    if (model.tokens[id].kind != BpeModel::Token::kAbsent)
      static_cast<std::vector<std::pair<const std::string, Json>>&>(entries).emplace_back(
          written(model.tokens[id]), id);
  for (const MergeRule& rule : model.merges)
    merges.push_back({written(model.tokens[rule.left]), written(model.tokens[rule.right])});
  Json unknown;
  if (model.unknown >= 0) unknown = written(model.tokens[model.unknown]);
  const Json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", model.nfc ? Json{{"type", "NFC"}} : Json()},
      {"pre_tokenizer", pre_tokenizer(model)},
      {"post_processor", model.post_processor.empty() ? Json() : Json::parse(model.post_processor)},
      {"decoder", byte_level(true, true)},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", unknown},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", model.ignore_merges},
        {"vocab", vocab},
        {"merges", merges}}}};
  write_file_whole(path, file.dump(1) + "\n");
}

}  // namespace tightloop
