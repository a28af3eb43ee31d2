#include <tuple>

#include "data/render/json_access.h"

namespace tightloop {

namespace {

namespace dom = simdjson::dom;

/// Where both sentences of a record are, until this thread's next call. Throws BadRecord.
std::pair<std::string_view, std::string_view> sides_of(const Record& record, const DataConfig& config,
                                                       bool json) {
  if (!json) return {record.bytes, record.second};
  static thread_local simdjson::dom::parser parser;
  static thread_local std::string rewritten;
  const dom::element root = parse_json(record.bytes, parser, rewritten);
  if (root.is_object()) {
    const dom::object object = root.get_object().value_unsafe();
    return {text_of(field_of(object, config.source_field), config.source_field),
            text_of(field_of(object, config.target_field), config.target_field)};
  }
  const dom::array pair = list_of(root, "a pair");
  if (pair.size() < 2) throw BadRecord{BadKind::kUnpaired, "the list has fewer than two sentences"};
  return {text_of(pair.at(0).value_unsafe(), "the first of a pair"),
          text_of(pair.at(1).value_unsafe(), "the second of a pair")};
}

class PairRenderer : public Renderer {
 public:
  PairRenderer(const DataConfig& config, const Tokenizer& source, const Tokenizer& target, bool json)
      : config_(config), source_(source), target_(target), json_(json) {}

 protected:
  void make(const Record& record, Rendered& out) const override {
    const auto [first, second] = sides_of(record, config_, json_);
    encode(first, source_, out.ids);
    encode(second, target_, out.second);
  }

 private:
  static void encode(std::string_view text, const Tokenizer& tokenizer, std::vector<int32_t>& ids) {
    if (text.find_first_not_of(" \t\r\n") == text.npos) throw BadRecord{BadKind::kEmpty, "one side is empty"};
    demand_text(text);
    const SentenceMarks marks(tokenizer);
    ids.push_back(marks.begin);
    tokenizer.encode(text, ids, SpecialText::kText);
    ids.push_back(marks.end);
  }

  DataConfig config_;
  const Tokenizer &source_, &target_;
  bool json_;
};

}  // namespace

SentenceMarks::SentenceMarks(const Tokenizer& tokenizer)
    : begin(tokenizer.token_id("<s>").value_or(tokenizer.end_of_text())),
      end(tokenizer.token_id("</s>").value_or(tokenizer.end_of_text())) {}

std::function<void(const Record&, std::string&, std::string&)> make_pair_texts(const DataConfig& config,
                                                                               bool json) {
  return [config, json](const Record& record, std::string& source, std::string& target) {
    std::tie(source, target) = sides_of(record, config, json);
    demand_text(source);
    demand_text(target);
  };
}

std::unique_ptr<Renderer> make_pair_renderer(const DataConfig& config, const Tokenizer& source,
                                             const Tokenizer& target, bool json) {
  return std::make_unique<PairRenderer>(config, source, target, json);
}

}  // namespace tightloop
