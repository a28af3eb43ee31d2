#include "data/json_messages.h"

namespace tightloop {

namespace {

namespace dom = simdjson::dom;

// The first of these fields that says something; nothing without one.
std::optional<dom::element> first_of(dom::object record, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    dom::element value;
    if (record.at_key(name).get(value) == simdjson::SUCCESS && !says_nothing(value)) return value;
  }
  return {};
}

bool has_any(dom::object record, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    if (has_field(record, name)) return true;
  return false;
}

dom::element answer_of(dom::object record, std::initializer_list<std::string_view> names) {
  if (const auto answer = first_of(record, names)) return *answer;
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
    if (messages.back().text.empty()) throw BadRecord{BadKind::kEmpty, "an answer in 'history' is empty"};
  }
}

void read_instruction(dom::object record, std::string& joined, std::vector<Message>& messages) {
  if (const auto history = first_of(record, {"history"})) add_history(*history, messages);
  const auto instruction = first_of(record, {"instruction"});
  const auto input = first_of(record, {"input", "context"});
  joined.clear();
  if (instruction) joined = text_of(*instruction, "instruction");
  if (input) (joined += instruction ? "\n" : "") += text_of(*input, "input");
  if (joined.empty()) throw BadRecord{BadKind::kEmpty, "the instruction is empty"};
  messages.push_back({Role::kUser, joined});
  messages.push_back({Role::kAssistant, text_of(answer_of(record, {"output", "response"}), "output")});
}

void read_prompt(dom::object record, const DataConfig& config, std::vector<Message>& messages) {
  const auto prompt = first_of(record, {"prompt"});
  if (!prompt) throw BadRecord{BadKind::kEmpty, "the prompt is empty"};
  if (prompt->is_array()) {
    add_turns(*prompt, config, messages);
  } else {
    messages.push_back({Role::kUser, text_of(*prompt, "prompt")});
  }
  const dom::element answer = answer_of(record, {"completion", "response"});
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
  demand_known_fields(record, shape == AnswerShape::kPrompt ? "prompt" : "instruction", config);
  if (const auto system = first_of(record, {"system", "system_prompt"}))
    messages.push_back({Role::kSystem, text_of(*system, "system")});
  if (shape == AnswerShape::kInstruction) {
    read_instruction(record, joined, messages);
  } else {
    read_prompt(record, config, messages);
  }
}

}  // namespace tightloop
