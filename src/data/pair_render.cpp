#include "data/json_access.h"

namespace tightloop {

namespace {

namespace dom = simdjson::dom;

class PairRenderer : public Renderer {
 public:
  PairRenderer(const DataConfig& config, const Tokenizer& source, const Tokenizer& target, bool json)
      : config_(config), source_(source), target_(target), json_(json) {}

 protected:
  void make(const Record& record, Rendered& out) const override {
    static thread_local simdjson::dom::parser parser;
    static thread_local std::string rewritten;
    std::string_view first = record.bytes, second = record.second;
    if (json_) {
      const dom::element root = parse_json(record.bytes, parser, rewritten);
      if (root.is_object()) {
        const dom::object object = root.get_object().value_unsafe();
        first = text_of(field_of(object, config_.source_field), config_.source_field);
        second = text_of(field_of(object, config_.target_field), config_.target_field);
      } else {
        const dom::array pair = list_of(root, "a pair");
        if (pair.size() < 2) throw BadRecord{BadKind::kUnpaired, "the list has fewer than two sentences"};
        first = text_of(pair.at(0).value_unsafe(), "the first of a pair");
        second = text_of(pair.at(1).value_unsafe(), "the second of a pair");
      }
    }
    encode(first, source_, out.ids);
    encode(second, target_, out.second);
  }

 private:
  static void encode(std::string_view text, const Tokenizer& tokenizer, std::vector<int32_t>& ids) {
    if (text.find_first_not_of(" \t\r\n") == text.npos) throw BadRecord{BadKind::kEmpty, "one side is empty"};
    if (!simdjson::validate_utf8(text.data(), text.size()))
      throw BadRecord{BadKind::kInvalidUtf8, "not UTF-8 text"};
    const int32_t end = tokenizer.end_of_text();
    ids.push_back(tokenizer.token_id("<s>").value_or(end));
    tokenizer.encode(text, ids, SpecialText::kText);
    ids.push_back(tokenizer.token_id("</s>").value_or(end));
  }

  DataConfig config_;
  const Tokenizer &source_, &target_;
  bool json_;
};

}  // namespace

std::unique_ptr<Renderer> make_pair_renderer(const DataConfig& config, const Tokenizer& source,
                                             const Tokenizer& target, bool json) {
  return std::make_unique<PairRenderer>(config, source, target, json);
}

}  // namespace tightloop
