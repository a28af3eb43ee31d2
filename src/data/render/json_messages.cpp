#include "data/render/json_messages.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "data/render/chat_writer.h"

namespace tightloop {

namespace {

namespace dom = simdjson::dom;

// What is known of a message besides who speaks and what is said, and says nothing to the model.
constexpr std::array<std::string_view, 10> kMetadata{"id",   "message_id", "parent_id",  "uuid", "index",
                                                     "turn", "timestamp",  "created_at", "lang", "language"};

template <class Names>
bool holds(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != std::ranges::end(names);
}

Role role_of(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, Role>, 12> kRoles{{{"system", Role::kSystem},
                                                                             {"developer", Role::kSystem},
                                                                             {"user", Role::kUser},
                                                                             {"human", Role::kUser},
                                                                             {"prompter", Role::kUser},
                                                                             {"assistant", Role::kAssistant},
                                                                             {"gpt", Role::kAssistant},
                                                                             {"model", Role::kAssistant},
                                                                             {"tool", Role::kTool},
                                                                             {"function", Role::kTool},
                                                                             {"observation", Role::kTool},
                                                                             {"ipython", Role::kTool}}};
  for (const auto& [spelling, role] : kRoles)
    if (spelling == name) return role;
  throw BadRecord{
      BadKind::kUnknownRole,
      fmt::format("unknown role '{}'; known are system, developer, user, assistant, tool and what "
                  "ShareGPT calls them (human, gpt, function_call, observation)",
                  name.substr(0, 40))};
}

void add_parts(Role role, dom::array parts, const DataConfig& config, std::vector<Message>& messages) {
  const size_t first = messages.size();
  for (const dom::element part : parts) {
    dom::object object;
    if (part.get(object) != simdjson::SUCCESS) {
      throw BadRecord{BadKind::kWrongType, "a part of a message is not an object"};
    }
    const std::string_view type =
        has_field(object, "type") ? text_of(field_of(object, "type"), "type") : "text";
    if (type != "python" && type != "python_output" && type != "text") {
      throw BadRecord{BadKind::kWrongType,
                      fmt::format("a part of the type '{}' is not text", type.substr(0, 40))};
    }
    for (const auto [name, value] : object)
      if (name != "type" && name != "text" && !says_nothing(value) && !holds(config.ignore_fields, name))
        refuse_field("a part of a message", name);
    Message message{role, text_of(field_of(object, "text"), "text")};
    if (type == "python") message.part = Message::Part::kCode;
    if (type == "python_output") message.part = Message::Part::kOutput;
    message.opens = messages.size() == first;
    message.closes = false;
    messages.push_back(message);
  }
  if (messages.size() == first) throw BadRecord{BadKind::kEmpty, "a message without parts"};
  messages.back().closes = true;
}

}  // namespace

void refuse_field(std::string_view where, std::string_view name) {
  throw BadRecord{BadKind::kUnknownField, lost_field(where, name)};
}

void ReadConversation::clear() {
  messages.clear();
  made.clear();
  tools = variables = variable_names = {};
}

Conversation ReadConversation::conversation(uint64_t hash) const {
  Conversation whole(messages);
  whole.tools = tools, whole.variables = variables, whole.variable_names = variable_names;
  whole.hash = hash;
  return whole;
}

bool says_nothing(dom::element value) {
  std::string_view text;
  dom::array list;
  dom::object object;
  if (value.is_null()) return true;
  if (value.get(text) == simdjson::SUCCESS) return is_blank(text);
  if (value.get(list) == simdjson::SUCCESS) return list.size() == 0;
  return value.get(object) == simdjson::SUCCESS && object.size() == 0;
}

namespace {

/// JSON that somebody will read. Throws BadRecord where a number of it was too large.
std::string whole_json(dom::element value, std::string_view field) {
  std::string json = simdjson::minify(value);
  if (json.find(kLargeNumber) != json.npos)
    throw BadRecord{BadKind::kWrongType,
                    fmt::format("'{}' holds a number that does not fit into 64 bits", field)};
  return json;
}

/// JSON as it is, or the JSON that a text holds. Throws BadRecord.
std::string json_of(dom::element value, std::string_view field) {
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) return whole_json(value, field);
  static thread_local dom::parser parser;
  dom::element inside;
  if (parser.parse(text.data(), text.size(), /*realloc_if_needed=*/true).get(inside) != simdjson::SUCCESS)
    throw BadRecord{BadKind::kMalformedJson, fmt::format("'{}' is a text that is not JSON", field)};
  return simdjson::minify(inside);
}

/// The arguments of calls are an object, or the JSON of one as a text: what a template then writes is
/// learned, broken or not. Throws BadRecord.
void check_arguments(dom::element calls) {
  dom::array list;
  if (calls.get(list) == simdjson::SUCCESS)
    for (const dom::element call : list) check_arguments(call);
  dom::object call, function;
  if (calls.get(call) != simdjson::SUCCESS) return;
  if (call.at_key("function").get(function) == simdjson::SUCCESS) call = function;
  std::string_view text, called;
  if (call.at_key("arguments").get(text) != simdjson::SUCCESS || is_blank(text)) return;
  static thread_local dom::parser parser;
  dom::element inside;
  if (parser.parse(text.data(), text.size(), /*realloc_if_needed=*/true).get(inside) == simdjson::SUCCESS)
    return;
  if (call.at_key("name").get(called) != simdjson::SUCCESS) called = "?";
  throw BadRecord{
      BadKind::kMalformedJson,
      fmt::format("the 'arguments' of a call of '{}' are a text that is not JSON", called.substr(0, 40))};
}

/// The same of calls, or of a text that holds them.
std::string calls_of(dom::element value, std::string_view field) {
  std::string calls = json_of(value, field);
  if (calls.find("\"arguments\":\"") == calls.npos) return calls;
  static thread_local dom::parser parser;
  dom::element inside;
  if (parser.parse(calls).get(inside) == simdjson::SUCCESS) check_arguments(inside);
  return calls;
}

/// What else a message says: its thinking, tools for all of the conversation, and fields that only templates
/// of models know.
void read_fields(dom::object object, std::string_view who, std::string_view key, const DataConfig& config,
                 Message& message, ReadConversation& out) {
  std::string fields, names;
  for (const auto [name, value] : object) {
    if (name == who || name == key || holds(kMetadata, name) || holds(config.ignore_fields, name)) continue;
    std::string_view thinking;
    if (name == "reasoning_content" && value.get(thinking) == simdjson::SUCCESS) {
      message.thinking = thinking;
      continue;
    }
    if (says_nothing(value)) continue;
    if (name == "tools") {
      read_tools(value, out);
      continue;
    }
    fields += fields.empty() ? '{' : ',';
    fields += nlohmann::json(name).dump() + ":";
    fields += name == "tool_calls" ? calls_of(value, name) : whole_json(value, name);
    // Which call a result belongs to is known by the order as well.
    const bool may_be_lost = name == "tool_call_id" || (name == "name" && message.role == Role::kTool);
    if (!may_be_lost) (names += name) += '\0';
  }
  if (fields.empty()) return;
  message.fields = out.keep(fields + "}");
  message.field_names = out.keep(std::move(names));
}

}  // namespace

void read_beside(dom::object record, const DataConfig& config, ReadConversation& out) {
  for (const auto [name, value] : record) {
    if (says_nothing(value) || holds(config.ignore_fields, name)) continue;
    if (name == "tools") read_tools(value, out);
    if (name != "chat_template_kwargs") continue;
    dom::object variables;
    if (value.get(variables) != simdjson::SUCCESS)
      throw BadRecord{BadKind::kWrongType, "'chat_template_kwargs' is not an object"};
    std::string names;
    for (const auto [variable, said] : variables) {
      if (variable == "messages" || variable == "add_generation_prompt")
        throw BadRecord{BadKind::kUnknownField,
                        fmt::format("'chat_template_kwargs' has '{}', which comes from elsewhere", variable)};
      if (!holds(config.ignore_fields, variable)) (names += variable) += '\0';
    }
    out.variables = out.keep(whole_json(value, name));
    out.variable_names = out.keep(std::move(names));
  }
}

void read_tools(dom::element value, ReadConversation& out) {
  std::string tools = json_of(value, "tools");
  if (!tools.starts_with('[')) throw BadRecord{BadKind::kWrongType, "'tools' is not a list"};
  if (!out.tools.empty() && out.tools != tools)
    throw BadRecord{BadKind::kUnknownField, "there are two different lists of 'tools'"};
  if (tools != "[]") out.tools = out.keep(std::move(tools));
}

namespace {

/// A turn of ShareGPT that is a call, or a list of them, in JSON: {"name": ..., "arguments": ...}. Throws
/// BadRecord.
void add_call_turn(std::string_view text, ReadConversation& out) {
  static thread_local dom::parser parser;
  dom::element value;
  if (parser.parse(text.data(), text.size(), /*realloc_if_needed=*/true).get(value) != simdjson::SUCCESS)
    throw BadRecord{BadKind::kMalformedJson, "a turn of function_call is not JSON"};
  check_arguments(value);
  std::string calls;
  const auto add = [&](dom::element call) {
    if (!call.is_object() || !has_field(call.get_object().value_unsafe(), "name"))
      throw BadRecord{BadKind::kWrongType,
                      "a turn of function_call is no object with 'name' and 'arguments'"};
    calls += calls.empty() ? '[' : ',';
    calls += R"({"type":"function","function":)" + whole_json(call, "function_call") + "}";
  };
  dom::array list;
  if (value.get(list) == simdjson::SUCCESS)
    for (const dom::element call : list) add(call);
  else
    add(value);
  if (calls.empty()) throw BadRecord{BadKind::kEmpty, "a turn of function_call without a call"};
  Message said{Role::kAssistant};
  said.fields = out.keep(R"({"tool_calls":)" + calls + "]}");
  said.field_names = out.keep(std::string("tool_calls\0", 11));
  out.messages.push_back(said);
}

}  // namespace

void add_turns(dom::element value, const DataConfig& config, ReadConversation& out) {
  dom::array turns;
  if (value.get(turns) != simdjson::SUCCESS)
    throw BadRecord{BadKind::kWrongType, "the conversation is not a list"};
  for (const dom::element turn : turns) {
    dom::object object;
    if (turn.get(object) != simdjson::SUCCESS)
      throw BadRecord{BadKind::kWrongType, "a message is not an object"};
    const std::string_view who = !has_field(object, "role") && has_field(object, "from") ? "from" : "role";
    const std::string_view key =
        !has_field(object, "content") && has_field(object, "value") ? "value" : "content";
    const std::string_view called = text_of(field_of(object, who), who);
    if (who == "from" && called == "function_call") {
      add_call_turn(text_of(field_of(object, key), key), out);
      continue;
    }
    Message said{role_of(called)};
    if (who == "role" && called != role_name(said.role)) said.called = called;
    read_fields(object, who, key, config, said, out);
    const bool says_more = !said.fields.empty() || (said.thinking && !is_blank(*said.thinking));
    const size_t first = out.messages.size();
    if (says_more && !has_field(object, key)) {
      said.content = kAbsent;
      out.messages.push_back(said);
    } else if (const dom::element content = field_of(object, key); content.is_array()) {
      add_parts(said.role, content.get_array().value_unsafe(), config, out.messages);
      const std::string_view text = out.messages[first].text;
      const Message::Part part = out.messages[first].part;
      const bool closes = out.messages[first].closes;
      said.text = text, said.part = part, said.closes = closes;
      said.content = out.keep(simdjson::minify(content));
      out.messages[first] = said;
    } else {
      if (says_more && content.is_null()) {
        said.content = "null";
      } else {
        said.text = text_of(content, key);
      }
      out.messages.push_back(said);
    }
    if (said.role != Role::kAssistant || says_more) continue;
    if (std::all_of(out.messages.begin() + static_cast<int64_t>(first), out.messages.end(),
                    [](const Message& m) { return is_blank(m.text); }))
      throw BadRecord{BadKind::kEmpty, "an answer of the assistant is empty"};
  }
}

void read_messages(dom::element value, const DataConfig& config, ReadConversation& out) {
  add_turns(value, config, out);
  if (out.messages.empty()) throw BadRecord{BadKind::kEmpty, "the conversation has no turn"};
  if (std::ranges::none_of(out.messages, [](const Message& m) { return m.role == Role::kAssistant; }))
    throw BadRecord{BadKind::kNoAssistant, "no turn of the assistant to learn from"};
}

// The part before the last = is code, the part behind it is what comes back, be it nothing. As nanochat does,
// which takes what <<[^>]+>> matches.
void split_calculations(std::vector<Message>& messages) {
  const std::string_view answer = messages.back().text;
  messages.pop_back();
  const size_t first = messages.size();
  const auto add = [&](std::string_view text, Message::Part part) {
    messages.push_back({Role::kAssistant, text, part, messages.size() == first, false});
  };
  size_t done = 0;
  const auto add_text = [&](size_t end) {
    if (end > done) add(answer.substr(done, end - done), Message::Part::kText);
  };
  for (size_t open = 0; (open = answer.find("<<", open)) != answer.npos;) {
    const size_t close = answer.find('>', open);
    if (close == answer.npos || close == open + 2 || !answer.substr(close).starts_with(">>")) {
      ++open;
      continue;
    }
    const std::string_view inside = answer.substr(open + 2, close - open - 2);
    const size_t equals = std::min(inside.rfind('='), inside.size());
    add_text(open);
    add(inside.substr(0, equals), Message::Part::kCode);
    add(inside.substr(std::min(equals + 1, inside.size())), Message::Part::kOutput);
    open = done = close + 2;
  }
  add_text(answer.size());
  messages.back().closes = true;
}

void demand_known_fields(dom::object record, std::span<const std::string_view> fields,
                         const DataConfig& config) {
  for (const std::string_view name : fields) {
    dom::element value;
    if (name == config.question_field || name == config.answer_field || name == config.choices_field ||
        record.at_key(name).get(value) != simdjson::SUCCESS || says_nothing(value) ||
        holds(config.ignore_fields, name))
      continue;
    refuse_field("the record", name);
  }
}

namespace {

constexpr std::string_view kFieldsWithMeaning[] = {
    // part of a conversation, and of a record with one answer
    "system", "system_prompt",
    // always
    "functions", "function_call", "tool_calls", "documents", "images", "image", "videos", "video", "audios",
    "audio", "thinking", "reasoning_content",
    // beside an instruction, a prompt or a question
    "passage",
    // part of an instruction, beside a prompt or a question
    "input", "context", "history"};

}  // namespace

std::span<const std::string_view> fields_with_meaning(RecordFormat format) {
  const auto names = std::span(kFieldsWithMeaning);
  return format == RecordFormat::kChat ? names.subspan(2, 12) : names;
}

std::span<const std::string_view> fields_with_meaning(AnswerShape shape) {
  const auto names = std::span(kFieldsWithMeaning);
  return shape == AnswerShape::kInstruction ? names.subspan(2, 13) : names.subspan(2);
}

}  // namespace tightloop
