#pragma once

// For the files that render JSON records: it includes simdjson, as data/render/json_access.h does.
#include <span>
#include <string_view>
#include <vector>

#include "data/render/chat.h"
#include "data/render/json_access.h"
#include "data/render/render.h"

namespace tightloop {

/// The turns of a conversation, in both common spellings. Throws BadRecord: nothing of a message is left out
/// unless data.ignore_fields says so.
void read_messages(simdjson::dom::element value, const DataConfig& config, std::vector<Message>& messages);
/// The same for a part of one: nobody needs to answer in it.
void add_turns(simdjson::dom::element value, const DataConfig& config, std::vector<Message>& messages);
/// Throws BadRecord for a field whose meaning would be lost.
[[noreturn]] void refuse_field(std::string_view where, std::string_view name);
/// Whether a field is null, empty or white space.
bool says_nothing(simdjson::dom::element value);

/// Of the answer that stands last: GSM8K's <<48/2=24>> becomes code that the assistant runs and what comes
/// back.
void split_calculations(std::vector<Message>& messages);

AnswerShape answer_shape(simdjson::dom::object record);
/// Their conversation. `joined` keeps a text that is put together of two fields. Throws BadRecord.
void read_answer(simdjson::dom::object record, AnswerShape shape, const DataConfig& config,
                 std::string& joined, std::vector<Message>& messages);

/// Throws BadRecord for one of `fields`, beside the conversation or the question, that is filled in.
void demand_known_fields(simdjson::dom::object record, std::span<const std::string_view> fields,
                         const DataConfig& config);

}  // namespace tightloop
