#pragma once

// For the files that render JSON records: it includes simdjson, as data/render/json_access.h does.
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/render/chat.h"
#include "data/render/json_access.h"
#include "data/render/render.h"

namespace tightloop {

/// A conversation as it is read, with the texts that had to be put together for it.
struct ReadConversation {
  std::vector<Message> messages;
  std::string_view tools, variables, variable_names;  // as Conversation has them
  std::deque<std::string> made;

  std::string_view keep(std::string text) { return made.emplace_back(std::move(text)); }
  void clear();
  Conversation conversation(uint64_t hash) const;
};

/// The turns of a conversation, in both common spellings. Throws BadRecord: nothing of a message is left out
/// unless data.ignore_fields says so.
void read_messages(simdjson::dom::element value, const DataConfig& config, ReadConversation& out);
/// The same for a part of one: nobody needs to answer in it.
void add_turns(simdjson::dom::element value, const DataConfig& config, ReadConversation& out);
/// A system turn of the record's `system` or `system_prompt`, if one of them says something. Throws BadRecord
/// where both do, and differ.
void add_system(simdjson::dom::object record, const DataConfig& config, ReadConversation& out);
/// Where the conversation behind that turn begins with a system turn of its own: they must say the same, and one
/// stays. Throws BadRecord.
void join_system(ReadConversation& out);
/// What a template is given besides the messages: `tools` and `chat_template_kwargs`. Throws BadRecord.
void read_beside(simdjson::dom::object record, const DataConfig& config, ReadConversation& out);
/// Tools: a list, or a text that is one in JSON. Throws BadRecord.
void read_tools(simdjson::dom::element value, ReadConversation& out);
/// Throws BadRecord for a field whose meaning would be lost.
[[noreturn]] void refuse_field(std::string_view where, std::string_view name);
/// Whether a field is null, empty or white space.
bool says_nothing(simdjson::dom::element value);

/// Of the answer that stands last: GSM8K's <<48/2=24>> becomes code that the assistant runs and what comes
/// back.
void split_calculations(std::vector<Message>& messages);

AnswerShape answer_shape(simdjson::dom::object record);
/// Their conversation. Throws BadRecord.
void read_answer(simdjson::dom::object record, AnswerShape shape, const DataConfig& config,
                 ReadConversation& out);

/// Throws BadRecord for one of `fields`, beside the conversation or the question, that is filled in.
void demand_known_fields(simdjson::dom::object record, std::span<const std::string_view> fields,
                         const DataConfig& config);

}  // namespace tightloop
