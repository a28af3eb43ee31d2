#include "serve/api/messages.h"

#include <deque>
#include <set>
#include <string>

#include "core/error.h"
#include "serve/api/fields.h"

namespace tightloop::serve {

namespace {

/// Messages with the texts that they point to.
struct ReadMessages {
  std::vector<Message> messages;
  std::deque<std::string> texts;
  std::set<std::string> call_ids;  // of the calls so far

  std::string_view keep(std::string text) { return texts.emplace_back(std::move(text)); }
};

Role role_of(const std::string& name, const std::string& where) {
  if (name == "system" || name == "developer") return Role::kSystem;
  if (name == "user") return Role::kUser;
  if (name == "assistant") return Role::kAssistant;
  if (name == "tool" || name == "function") return Role::kTool;
  throw wrong_field(where, "there is no role '{}': system, developer, user, assistant, tool.",
                    name.substr(0, 40));
}

/// The text of a list of parts.
std::string text_of_parts(const OrderedJson& parts, const std::string& where) {
  std::string text;
  for (const auto& part : parts) {
    const bool known = part.is_object() && part.contains("type") && part["type"] == "text" &&
                       part.contains("text") && part["text"].is_string();
    if (!known)
      throw wrong_field(where, "of a message's parts only {{\"type\": \"text\", \"text\": ...}} is taken.");
    text += part["text"].get<std::string>();
  }
  return text;
}

/// Templates want arguments as an object; clients send the text that they were given.
OrderedJson with_objects(OrderedJson calls, const std::string& where) {
  if (!calls.is_array()) throw wrong_field(where, "'tool_calls' must be a list.");
  for (auto& call : calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
      throw wrong_field(where, "an entry of 'tool_calls' has no 'function'.");
    auto& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    const auto text = function["arguments"].get<std::string>();
    auto arguments = parse_ordered(text);
    if (arguments.is_object()) function["arguments"] = std::move(arguments);
  }
  return calls;
}

bool says_nothing(const OrderedJson& value) {
  return value.is_null() || ((value.is_array() || value.is_object() || value.is_string()) && value.empty());
}

/// A result of a call that nobody made has no place in the conversation. `called`: the ids of the calls so
/// far.
void check_call_ids(const OrderedJson& message, const std::string& where, std::set<std::string>& called) {
  if (const auto calls = message.find("tool_calls"); calls != message.end())
    for (const auto& call : *calls)
      if (const auto id = call.find("id"); id != call.end() && id->is_string())
        called.insert(id->get<std::string>());
  const auto id = message.find("tool_call_id");
  if (id == message.end() || says_nothing(*id)) return;
  if (!id->is_string()) throw wrong_field(where + ".tool_call_id", "'tool_call_id' must be a string.");
  const auto& name = id->get_ref<const std::string&>();
  if (!called.contains(name))
    throw wrong_field(where + ".tool_call_id",
                      "no message before this one holds a call with the id '{}': give the id of one of its "
                      "'tool_calls'.",
                      name.substr(0, 40));
}

void read_message(const OrderedJson& object, size_t number, ReadMessages& out) {
  const std::string where = fmt::format("messages[{}]", number);
  if (!object.is_object()) throw wrong_field(where, "a message must be an object with 'role' and 'content'.");
  if (!object.contains("role") || !object["role"].is_string())
    throw wrong_field(where + ".role", "a message has no 'role'.");
  const std::string role = object["role"].get<std::string>();
  Message message{role_of(role, where + ".role")};
  if (role != role_name(message.role)) message.called = out.keep(role);
  OrderedJson others = OrderedJson::object();
  std::string names;
  for (const auto& [name, value] : object.items()) {
    if (name == "role" || name == "content" || says_nothing(value)) continue;
    if ((name == "reasoning_content" || name == "reasoning") && value.is_string()) {
      if (message.role == Role::kAssistant) message.thinking = out.keep(value.get<std::string>());
      continue;
    }
    others[name] = name == "tool_calls" ? with_objects(value, where + ".tool_calls") : value;
    // Which call a result belongs to is known by the order as well.
    if (name == "tool_call_id" || (name == "name" && message.role == Role::kTool)) continue;
    (names += name) += '\0';
  }
  check_call_ids(others, where, out.call_ids);
  if (!others.empty()) message.fields = out.keep(others.dump());
  message.field_names = out.keep(std::move(names));
  const auto content = object.find("content");
  if (content == object.end() || content->is_null()) {
    if (message.role != Role::kAssistant || others.empty())
      throw wrong_field(where + ".content", "a message has no 'content'.");
    // Empty, as clients mean it: templates look into what is there.
  } else if (content->is_string()) {
    message.text = out.keep(content->get<std::string>());
  } else if (content->is_array()) {
    message.text = out.keep(text_of_parts(*content, where + ".content"));
    message.content = out.keep(content->dump());
  } else {
    throw wrong_field(where + ".content", "'content' must be a string or a list of parts.");
  }
  out.messages.push_back(message);
}

/// What check() says was written for who trains: what a setting would do about it is left out.
std::string for_clients(std::string why) { return why.substr(0, why.find("; ")) + "."; }

bool form_takes(const ChatTemplate& chat, const Conversation& conversation, std::string& why) {
  const BadKind bad = chat.check(conversation, why);
  return bad == BadKind::kNone || bad == BadKind::kControlToken;  // in what was said before: plain text
}

}  // namespace

std::vector<int32_t> chat_prompt(const ChatTemplate& chat, const OrderedJson& messages,
                                 const OrderedJson& tools, const OrderedJson& variables) {
  ReadMessages read;
  for (size_t i = 0; i < messages.size(); ++i) read_message(messages[i], i, read);
  for (size_t i = 0; i < read.messages.size(); ++i)
    if (const auto token = chat.smuggled_token(read.messages[i].text); !token.empty())
      throw wrong_field(fmt::format("messages[{}].content", i),
                        "the text holds '{}', a control token that this tokenizer cannot spell out.", token);
  Conversation conversation(read.messages);
  if (tools.is_array() && !tools.empty()) conversation.tools = read.keep(tools.dump());
  if (variables.is_object() && !variables.empty()) conversation.variables = read.keep(variables.dump());
  std::string why;
  if (!form_takes(chat, conversation, why)) {
    // Thinking of earlier turns, which clients send back, is left out by templates that do not read it.
    for (Message& message : read.messages) message.thinking.reset();
    if (!form_takes(chat, conversation, why))
      throw ApiError{.message = fmt::format("the model's chat form cannot write this: {}", for_clients(why)),
                     .param = "messages"};
  }
  try {
    return chat.prompt(conversation);
  } catch (const BadRecord& bad) {
    throw ApiError{.message = fmt::format("the model's chat form cannot write this: {}.", bad.why),
                   .param = "messages"};
  } catch (const Error& error) {
    throw ApiError{.message = fmt::format("the model's chat template refuses this: {}", error.what()),
                   .param = "messages"};
  }
}

}  // namespace tightloop::serve
