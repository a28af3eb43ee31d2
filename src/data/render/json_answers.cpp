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

void read_instruction(dom::object record, const DataConfig& config, ReadConversation& out) {
  std::vector<Message>& messages = out.messages;
  if (const auto history = said_in(record, config, {"history"})) add_history(*history, messages);
  const auto instruction = said_in(record, config, {"instruction"});
  const auto input = said_in(record, config, {"input", "context"});
  std::string joined;
  if (instruction) joined = text_of(*instruction, "instruction");
  if (input) (joined += instruction ? "\n" : "") += text_of(*input, "input");
  if (joined.empty()) throw BadRecord{BadKind::kEmpty, "the instruction is empty"};
  messages.push_back({Role::kUser, out.keep(std::move(joined))});
  messages.push_back(
      {Role::kAssistant, text_of(answer_of(record, config, {"output", "response"}), "output")});
}

/// Turns, or the text of one.
void add_text_or_turns(dom::element value, Role role, std::string_view field, const DataConfig& config,
                       ReadConversation& out) {
  if (value.is_array()) return add_turns(value, config, out);
  out.messages.push_back({role, text_of(value, field)});
}

void demand_answer(const ReadConversation& out, std::string_view field) {
  if (out.messages.empty() || out.messages.back().role != Role::kAssistant)
    throw BadRecord{BadKind::kNoAssistant, fmt::format("the {} is not a turn of the assistant", field)};
}

void read_prompt(dom::object record, const DataConfig& config, ReadConversation& out) {
  const auto prompt = said_in(record, config, {"prompt"});
  if (!prompt) throw BadRecord{BadKind::kEmpty, "the prompt is empty"};
  add_text_or_turns(*prompt, Role::kUser, "prompt", config, out);
  add_text_or_turns(answer_of(record, config, {"completion", "response"}), Role::kAssistant, "completion",
                    config, out);
  demand_answer(out, "completion");
}

/// {"prompt": ..., "chosen": ..., "rejected": ...}, where the prompt may be a part of both.
void read_preference(dom::object record, const DataConfig& config, ReadConversation& out) {
  if (config.preferences == Preferences::kRefuse)
    throw BadRecord{BadKind::kUnknownField,
                    "the record has the fields 'chosen' and 'rejected'; data.preferences says which of them "
                    "to learn"};
  const std::string_view field = name_of(config.preferences);
  const dom::element answer = answer_of(record, config, {field});
  const auto prompt = said_in(record, config, {"prompt", "question"});
  ReadConversation own;  // a list that does not begin with an answer is a conversation as a whole
  add_text_or_turns(answer, Role::kAssistant, field, config, own);
  const bool whole = !own.messages.empty() && is_one_of(own.messages[0].role, {Role::kSystem, Role::kUser});
  if (prompt && !whole) add_text_or_turns(*prompt, Role::kUser, "prompt", config, out);
  if (prompt && whole) {
    ReadConversation asked;
    add_text_or_turns(*prompt, Role::kUser, "prompt", config, asked);
    std::span<const Message> head = own.messages;
    const bool system = !asked.messages.empty() && asked.messages[0].role == Role::kSystem;
    while (!system && !head.empty() && head[0].role == Role::kSystem) head = head.subspan(1);
    const auto same = [](const Message& a, const Message& b) { return a.role == b.role && a.text == b.text; };
    if (std::ranges::mismatch(asked.messages, head, same).in1 != asked.messages.end())
      throw BadRecord{BadKind::kUnknownField,
                      fmt::format("'prompt' is not what the conversation in '{}' begins with", field)};
  }
  add_text_or_turns(answer, Role::kAssistant, field, config, out);
  demand_answer(out, field);
}

}  // namespace

void add_system(dom::object record, const DataConfig& config, ReadConversation& out) {
  if (const auto system = said_in(record, config, {"system", "system_prompt"}))
    out.messages.push_back({Role::kSystem, text_of(*system, "system")});
}

void join_system(ReadConversation& out) {
  auto& messages = out.messages;
  if (messages.size() < 2 || messages[1].role != Role::kSystem) return;
  if (messages[0].text != messages[1].text) refuse_field("the record", "system");
  messages.erase(messages.begin());
}

AnswerShape answer_shape(dom::object record) {
  if (has_field(record, "chosen") && has_field(record, "rejected")) return AnswerShape::kPreference;
  if (has_field(record, "instruction") && has_any(record, {"output", "response"}))
    return AnswerShape::kInstruction;
  if (has_field(record, "prompt") && has_any(record, {"completion", "response"})) return AnswerShape::kPrompt;
  return AnswerShape::kNone;
}

void read_answer(dom::object record, AnswerShape shape, const DataConfig& config, ReadConversation& out) {
  demand_known_fields(record, fields_with_meaning(shape), config);
  add_system(record, config, out);
  const bool beside = !out.messages.empty();
  read_beside(record, config, out);
  switch (shape) {
    case AnswerShape::kInstruction:
      read_instruction(record, config, out);
      break;
    case AnswerShape::kPrompt:
      read_prompt(record, config, out);
      break;
    case AnswerShape::kPreference:
      read_preference(record, config, out);
      break;
    case AnswerShape::kNone:
      break;
  }
  if (beside) join_system(out);
}

}  // namespace tightloop
