#include <algorithm>

#include "data/render/json_access.h"

namespace tightloop {

namespace {

namespace dom = simdjson::dom;

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

std::vector<std::string_view> texts_of(dom::element list, std::string_view field) {
  std::vector<std::string_view> texts;
  for (const dom::element item : list_of(list, field)) texts.push_back(text_of(item, field));
  return texts;
}

size_t right_of(dom::element answer, const std::vector<std::string_view>& choices,
                const std::vector<std::string_view>& labels) {
  const size_t none = choices.size();
  uint64_t number = 0;
  std::string_view name;
  size_t right = none;
  if (answer.get(number) == simdjson::SUCCESS) {
    right = number;
  } else if (answer.get(name) != simdjson::SUCCESS) {
    throw BadRecord{BadKind::kWrongType, "the answer is neither number nor text"};
  } else if (!labels.empty()) {
    right = std::ranges::find(labels, name) - labels.begin();
  } else {
    right = std::ranges::find(choices, name) - choices.begin();
    const size_t letter = name.size() == 1 && name[0] >= 'A' ? static_cast<size_t>(name[0] - 'A') : none;
    if (letter < none && right < none && right != letter)
      throw BadRecord{
          BadKind::kWrongType,
          fmt::format("the answer '{}' is the letter of one choice and the text of another", name)};
    if (letter < none) right = letter;
  }
  if (right < none) return right;
  const bool digits = !name.empty() && name.find_first_not_of("0123456789") == name.npos;
  throw BadRecord{
      BadKind::kWrongType,
      fmt::format("the answer is none of the choices{}",
                  digits && labels.empty() ? " (a number that counts from 0 has no quotes)" : "")};
}

}  // namespace

ChoiceQuestion read_choice(dom::object record, const DataConfig& config) {
  ChoiceQuestion out;
  out.question = text_of(field_of(record, config.question_field), config.question_field);
  const dom::element value = field_of(record, config.choices_field);
  dom::object columns;  // {"text": [...], "label": [...]}, as ARC has it
  const bool labelled = value.get(columns) == simdjson::SUCCESS;
  out.choices = texts_of(labelled ? field_of(columns, "text") : value, config.choices_field);
  if (out.choices.size() < 2 || out.choices.size() > kLetters.size())
    throw BadRecord{BadKind::kWrongType, "a multiple choice needs a list of 2 to 26 choices"};
  if (labelled && has_field(columns, "label")) {
    out.labels = texts_of(field_of(columns, "label"), "label");
    if (out.labels.size() != out.choices.size())
      throw BadRecord{BadKind::kWrongType,
                      fmt::format("{} labels for {} choices", out.labels.size(), out.choices.size())};
  }
  out.right = right_of(field_of(record, config.answer_field), out.choices, out.labels);
  for (size_t i = out.labels.size(); i < out.choices.size(); ++i) out.labels.push_back(kLetters.substr(i, 1));
  return out;
}

std::string choice_text(const ChoiceQuestion& choice) {
  std::string text = fmt::format("Multiple Choice question: {}\n", choice.question);
  for (size_t i = 0; i < choice.choices.size(); ++i)
    text += fmt::format("- {}={}\n", choice.choices[i], choice.labels[i]);
  return text + "\nRespond only with the letter of the correct answer.";
}

ChoiceQuestion read_choice(std::string_view json, const DataConfig& config) {
  static thread_local dom::parser parser;
  static thread_local std::string rewritten;
  dom::object record;
  if (parse_json(json, parser, rewritten).get(record) != simdjson::SUCCESS)
    throw BadRecord{BadKind::kWrongType, "the record is not an object"};
  return read_choice(record, config);
}

}  // namespace tightloop
