#pragma once

// For the files that render JSON records: it includes simdjson, as data/render/json_access.h does.
#include <vector>

#include "data/render/chat.h"
#include "data/render/json_access.h"

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

/// Records with one answer: Alpaca's {instruction, input, output} and {prompt, completion}.
enum class AnswerShape { kNone, kInstruction, kPrompt };
AnswerShape answer_shape(simdjson::dom::object record);
/// Their conversation. `joined` keeps a text that is put together of two fields. Throws BadRecord.
void read_answer(simdjson::dom::object record, AnswerShape shape, const DataConfig& config,
                 std::string& joined, std::vector<Message>& messages);

/// Throws BadRecord for a field beside the conversation or the question that changes what it means.
void demand_known_fields(simdjson::dom::object record, std::string_view format, const DataConfig& config);

}  // namespace tightloop
