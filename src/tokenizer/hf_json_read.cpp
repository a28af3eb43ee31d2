#include <simdjson.h>

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/error.h"
#include "core/files.h"
#include "core/io/json_depth.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/hf_json.h"

namespace tightloop {

namespace {

namespace json = simdjson::dom;

/// Whether there is a {1,3}+ in the pattern: possessive to PCRE2, a repeated group to Hugging Face's engine.
bool repeats_counted(std::string_view regex) {
  for (size_t at = regex.find("}+"); at != std::string_view::npos; at = regex.find("}+", at + 1)) {
    const size_t open = regex.rfind('{', at);
    if (open != std::string_view::npos &&
        regex.substr(open + 1, at - open - 1).find_first_not_of("0123456789,") == std::string_view::npos)
      return true;
  }
  return false;
}

/// Reads one file; every error names it.
class TokenizerReader {
 public:
  TokenizerReader(const std::string& bytes, const std::string& source) : source_(source) {
    const auto parsed = parser_.parse(bytes);
    if (parsed.error())
      throw data_error("{} is not JSON: {}.", source_, simdjson::error_message(parsed.error()));
    root_ = parsed.value_unsafe();
    if (!root_.is_object()) throw refuse("the file is not a JSON object");
  }

  BpeModel read() {
    const json::element model = need(root_, "model");
    read_model(model);
    read_added();
    read_normalizer();
    model_.splits.clear();
    bool byte_level = false;
    read_pre_tokenizer(field(root_, "pre_tokenizer"), byte_level);
    if (!byte_level)
      throw refuse("the pre-tokenizer has no ByteLevel step: only byte-level BPE is supported");
    const json::element post = field(root_, "post_processor");
    if (!post.is_null()) model_.post_processor = simdjson::minify(post);
    return std::move(model_);
  }

 private:
  Error refuse(const std::string& what) const { return data_error("{}: {}.", source_, what); }

  /// The field, or a null where there is none.
  static json::element field(json::element object, std::string_view name) {
    static json::parser parser;
    static const json::element null = parser.parse("null", 4).value();
    json::element value;
    if (!object.is_object() || object[name].get(value)) return null;
    return value;
  }
  json::element need(json::element object, std::string_view name) const {
    json::element value;
    if (!object.is_object() || object[name].get(value))
      throw refuse(fmt::format("the field '{}' is missing", name));
    return value;
  }
  std::string_view text(json::element value, std::string_view what) const {
    std::string_view result;
    if (value.get(result)) throw refuse(fmt::format("{} must be a string", what));
    return result;
  }
  int64_t number(json::element value, std::string_view what) const {
    int64_t result;
    if (value.get(result)) throw refuse(fmt::format("{} must be a whole number", what));
    return result;
  }
  bool flag(json::element object, std::string_view name, bool otherwise) const {
    const json::element value = field(object, name);
    bool result = otherwise;
    if (!value.is_null() && value.get(result)) throw refuse(fmt::format("'{}' must be true or false", name));
    return result;
  }

  void read_model(json::element model) {
    const json::element type = field(model, "type");
    if (!type.is_null() && text(type, "the model's type") != "BPE")
      throw refuse(fmt::format("the model is of type '{}', and only BPE is supported", text(type, "")));
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const json::element value = field(model, name);
      if (!value.is_null() && !text(value, name).empty())
        throw refuse(fmt::format("the model's '{}' is not supported", name));
    }
    const json::element dropout = field(model, "dropout");
    double rate = 0;
    if (!dropout.is_null() && (dropout.get(rate) || rate != 0))
      throw refuse("the model's 'dropout' is not supported");
    if (flag(model, "byte_fallback", false)) throw refuse("the model's 'byte_fallback' is not supported");
    model_.ignore_merges = flag(model, "ignore_merges", false);

    json::object vocab;
    if (need(model, "vocab").get(vocab)) throw refuse("'vocab' must be an object of tokens and ids");
    std::unordered_map<std::string_view, int32_t> ids;
    ids.reserve(vocab.size());
    for (const auto [token, value] : vocab) {
      const int64_t id = number(value, "an id in 'vocab'");
      set_token(model_, token, id, source_);
      ids.emplace(token, static_cast<int32_t>(id));
    }
    const json::element unknown = field(model, "unk_token");
    if (!unknown.is_null()) {
      const auto found = ids.find(text(unknown, "'unk_token'"));
      if (found == ids.end()) throw refuse("'unk_token' is not in the vocabulary");
      if (flag(model, "fuse_unk", false)) throw refuse("the model's 'fuse_unk' is not supported");
      model_.unknown = found->second;
    }
    read_merges(need(model, "merges"), ids);
  }

  void read_merges(json::element merges, const std::unordered_map<std::string_view, int32_t>& ids) {
    json::array list;
    if (merges.get(list)) throw refuse("'merges' must be a list");
    std::string both;
    for (const json::element item : list) {
      std::string_view left, right;
      json::array pair;
      if (!item.get(pair)) {
        if (pair.size() != 2) throw refuse(fmt::format("merge {} is not a pair", model_.merges.size()));
        left = text(pair.at(0), "a merge"), right = text(pair.at(1), "a merge");
      } else {
        const std::string_view line = text(item, "a merge");
        const size_t space = line.find(' ');
        if (space == std::string_view::npos)
          throw refuse(fmt::format("merge '{}' is not two tokens with a space between", line));
        left = line.substr(0, space), right = line.substr(space + 1);
      }
      both.assign(left).append(right);
      const auto l = ids.find(left), r = ids.find(right), result = ids.find(both);
      if (l == ids.end() || r == ids.end() || result == ids.end())
        throw refuse(fmt::format("the merge of '{}' and '{}' needs a token that is not in the vocabulary",
                                 left, right));
      const auto in_bytes = [&](int32_t id) { return model_.tokens[id].kind == BpeModel::Token::kBytes; };
      // Pieces are in the byte alphabet, so a merge of other characters can never happen.
      if (in_bytes(l->second) && in_bytes(r->second))
        model_.merges.push_back({l->second, r->second, result->second});
    }
  }

  void read_added() {
    const json::element list = field(root_, "added_tokens");
    if (list.is_null()) return;
    json::array items;
    if (list.get(items)) throw refuse("'added_tokens' must be a list");
    for (const json::element item : items) {
      AddedToken token;
      token.content = text(need(item, "content"), "the content of an added token");
      const int64_t id = number(need(item, "id"), "the id of an added token");
      if (id < 0 || id >= kTokenLimit)
        throw refuse(fmt::format("the id {} of '{}' is out of range", id, token.content));
      token.id = static_cast<int32_t>(id);
      token.special = flag(item, "special", false);
      token.normalized = flag(item, "normalized", !token.special);
      token.single_word = flag(item, "single_word", false);
      token.lstrip = flag(item, "lstrip", false);
      token.rstrip = flag(item, "rstrip", false);
      if (model_.tokens.size() <= static_cast<size_t>(id)) model_.tokens.resize(id + 1);
      if (model_.tokens[id].kind != BpeModel::Token::kBytes || model_.tokens[id].bytes != token.content)
        model_.tokens[id] = {token.content, BpeModel::Token::kVerbatim};
      model_.added.push_back(std::move(token));
    }
  }

  void read_normalizer() {
    const json::element normalizer = field(root_, "normalizer");
    if (normalizer.is_null()) return;
    const std::string_view type = text(need(normalizer, "type"), "the normalizer's type");
    if (type == "Sequence") {
      json::array steps;
      if (need(normalizer, "normalizers").get(steps))
        throw refuse("the normalizer's sequence must be a list");
      if (steps.size() == 0) return;
    }
    if (type != "NFC")
      throw refuse(fmt::format("the normalizer '{}' is not supported (NFC and none are)", type));
    model_.nfc = true;
  }

  void read_pre_tokenizer(json::element step, bool& byte_level) {
    if (step.is_null()) return;
    const std::string_view type = text(need(step, "type"), "the pre-tokenizer's type");
    if (byte_level)
      throw refuse(fmt::format("the pre-tokenizer '{}' after ByteLevel is not supported", type));
    if (type == "Sequence") {
      json::array steps;
      if (need(step, "pretokenizers").get(steps)) throw refuse("the pre-tokenizer's sequence must be a list");
      for (const json::element one : steps) read_pre_tokenizer(one, byte_level);
    } else if (type == "ByteLevel") {
      byte_level = true;
      model_.add_prefix_space = flag(step, "add_prefix_space", true);
      if (model_.add_prefix_space && !model_.splits.empty())
        throw refuse("'add_prefix_space' after another pre-tokenizer is not supported");
      if (flag(step, "use_regex", true)) model_.splits.push_back({SplitPattern::kGpt2, ""});
      if (model_.splits.empty()) model_.splits.push_back({SplitPattern::kNone, ""});
    } else if (type == "Split") {
      read_split(step);
    } else if (type == "Digits") {
      const bool single = flag(step, "individual_digits", false);
      model_.splits.push_back({single ? SplitPattern::kDigit : SplitPattern::kDigits, ""});
    } else {
      throw refuse(
          fmt::format("the pre-tokenizer '{}' is not supported (ByteLevel, Digits and Split are)", type));
    }
  }

  void read_split(json::element step) {
    const std::string_view behavior = text(need(step, "behavior"), "the behavior of a Split");
    const bool invert = flag(step, "invert", false);
    const json::element pattern = need(step, "pattern");
    std::string regex;
    if (const json::element plain = field(pattern, "String"); !plain.is_null()) {
      for (const char c : text(plain, "the pattern of a Split")) {
        if (std::ispunct(static_cast<unsigned char>(c))) regex += '\\';
        regex += c;
      }
    } else {
      regex = text(need(pattern, "Regex"), "the pattern of a Split");
    }
    const auto scanner = scanner_for(regex);
    // Removing what is between the matches removes nothing where the pattern covers all text.
    const bool covers = scanner != SplitPattern::kDigit && scanner != SplitPattern::kDigits;
    const bool whole = scanner && covers && behavior == "Removed" && invert;
    if (!whole && (behavior != "Isolated" || invert))
      throw refuse(fmt::format("a Split with behavior '{}'{} is not supported (Isolated is)", behavior,
                               invert ? " and invert" : ""));
    if (!scanner && repeats_counted(regex))
      throw refuse(fmt::format(
          "the split pattern '{}' repeats a counted group with '}}+', which is not supported", regex));
    if (scanner)
      model_.splits.push_back({*scanner, ""});
    else
      model_.splits.push_back({SplitPattern::kNone, regex});
  }

  const std::string source_;
  json::parser parser_;
  json::element root_;
  BpeModel model_;
};

}  // namespace

std::string read_tokenizer_file(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto size = std::filesystem::file_size(path, ignored);
  if (!ignored && size > (uintmax_t{1} << 30))
    throw data_error("'{}' has {} bytes: too large for a tokenizer.", path.string(), size);
  return read_file(path);
}

void set_token(BpeModel& model, std::string_view written, int64_t id, const std::string& source) {
  if (id < 0 || id >= kTokenLimit)
    throw data_error("{}: the id {} of '{}' is out of range (0 to {}).", source, id, written,
                     kTokenLimit - 1);
  if (model.tokens.size() <= static_cast<size_t>(id)) model.tokens.resize(id + 1);
  BpeModel::Token& token = model.tokens[id];
  if (token.kind != BpeModel::Token::kAbsent)
    throw data_error("{}: two tokens have the id {}, '{}' is one of them.", source, id, written);
  if (auto bytes = from_byte_alphabet(written))
    token = {std::move(*bytes), BpeModel::Token::kBytes};
  else
    token = {std::string(written), BpeModel::Token::kVerbatim};
}

BpeModel parse_hf_json(const std::string& bytes, const std::string& source) {
  return TokenizerReader(bytes, source).read();
}

BpeModel read_hf_json(const std::filesystem::path& path) {
  return parse_hf_json(read_tokenizer_file(path), path.string());
}

// Not by simdjson, which refuses the model_max_length of 10^30 that transformers writes where there is no
// limit.
void read_hf_config(const std::filesystem::path& path, BpeModel& model) {
  const auto config =
      nlohmann::json::parse(shallow_json(read_tokenizer_file(path)), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) throw data_error("{} is not a JSON object.", path.string());
  if (const auto end = config.find("eos_token"); end != config.end()) {
    const auto& content = end->is_object() && end->contains("content") ? (*end)["content"] : *end;
    if (content.is_string()) model.end_of_text = content.get<std::string>();
  }
  const auto flags = config.find("tightloop");
  if (flags == config.end() || !flags->is_object()) return;
  if (const auto end = flags->find("end_of_text"); end != flags->end() && end->is_string())
    model.end_of_text = end->get<std::string>();
  for (const auto& [name, value] :
       {std::pair<const char*, bool*>{"parse_added", &model.parse_added}, {"same_rank", &model.same_rank}}) {
    const auto flag = flags->find(name);
    if (flag == flags->end()) continue;
    if (!flag->is_boolean()) throw data_error("{}: '{}' must be true or false.", path.string(), name);
    *value = flag->get<bool>();
  }
}

}  // namespace tightloop
