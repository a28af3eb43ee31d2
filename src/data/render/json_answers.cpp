#include <algorithm>

#include "data/render/json_messages.h"

namespace tightloop {

namespace {

namespace dom = simdjson::dom;

// What these fields, names of one thing, say; nothing where none of them does. data.ignore_fields leaves
// some out.
std::optional<dom::element> said_in(dom::object record, const DataConfig& config,
                                    std::initializer_list<std::string_view> names) {
  std::optional<dom::element> said;
  for (const std::string_view name : names) {
    dom::element value;
    if (record.at_key(name).get(value) != simdjson::SUCCESS || says_nothing(value) ||
        std::ranges::count(config.ignore_fields, name) > 0)
      continue;
    if (said && simdjson::minify(*said) != simdjson::minify(value)) refuse_field("the record", name);
    if (!said) said = value;
  }
  return said;
}

bool has_any(dom::object record, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    if (has_field(record, name)) return true;
  return false;
}

dom::element answer_of(dom::object record, const DataConfig& config,
                       std::initializer_list<std::string_view> names) {
  if (const auto answer = said_in(record, config, names)) return *answer;
  throw BadRecord{BadKind::kEmpty, "the answer is empty"};
}

// [["question", "answer"], ...]
void add_history(dom::element history, std::vector<Message>& messages) {
  for (const dom::element turn : list_of(history, "history")) {
    const dom::array pair = list_of(turn, "a turn of history");
    if (pair.size() != 2)
      throw BadRecord{BadKind::kWrongType, "a turn of 'history' is not a question and its answer"};
    messages.push_back({Role::kUser, text_of(pair.at(0).value_unsafe(), "history")});
    messages.push_back({Role::kAssistant, text_of(pair.at(1).value_unsafe(), "history")});
    if (is_blank(messages.back().text)) throw BadRecord{BadKind::kEmpty, "an answer in 'history' is empty"};
  }
}

void read_instruction(dom::object record, const DataConfig& config, std::string& joined,
                      std::vector<Message>& messages) {
  if (const auto history = said_in(record, config, {"history"})) add_history(*history, messages);
  const auto instruction = said_in(record, config, {"instruction"});
  const auto input = said_in(record, config, {"input", "context"});
  joined.clear();
  if (instruction) joined = text_of(*instruction, "instruction");
  if (input) (joined += instruction ? "\n" : "") += text_of(*input, "input");
  if (joined.empty()) throw BadRecord{BadKind::kEmpty, "the instruction is empty"};
  messages.push_back({Role::kUser, joined});
  messages.push_back(
      {Role::kAssistant, text_of(answer_of(record, config, {"output", "response"}), "output")});
}

void read_prompt(dom::object record, const DataConfig& config, std::vector<Message>& messages) {
  const auto prompt = said_in(record, config, {"prompt"});
  if (!prompt) throw BadRecord{BadKind::kEmpty, "the prompt is empty"};
  if (prompt->is_array()) {
    add_turns(*prompt, config, messages);
  } else {
    messages.push_back({Role::kUser, text_of(*prompt, "prompt")});
  }
  const dom::element answer = answer_of(record, config, {"completion", "response"});
  if (answer.is_array()) {
    add_turns(answer, config, messages);
  } else {
    messages.push_back({Role::kAssistant, text_of(answer, "completion")});
  }
  if (messages.back().role != Role::kAssistant)
    throw BadRecord{BadKind::kNoAssistant, "the completion is not a turn of the assistant"};
}

}  // namespace

AnswerShape answer_shape(dom::object record) {
  if (has_field(record, "instruction") && has_any(record, {"output", "response"}))
    return AnswerShape::kInstruction;
  if (has_field(record, "prompt") && has_any(record, {"completion", "response"})) return AnswerShape::kPrompt;
  return AnswerShape::kNone;
}

void read_answer(dom::object record, AnswerShape shape, const DataConfig& config, std::string& joined,
                 std::vector<Message>& messages) {
  demand_known_fields(record, fields_with_meaning(shape), config);
  if (const auto system = said_in(record, config, {"system", "system_prompt"}))
    messages.push_back({Role::kSystem, text_of(*system, "system")});
  if (shape == AnswerShape::kInstruction) {
    read_instruction(record, config, joined, messages);
  } else {
    read_prompt(record, config, messages);
  }
}

}  // namespace tightloop
