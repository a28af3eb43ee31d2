#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "infer/exam.h"

namespace tightloop::cli {

/// Accuracy by task as a table, and the examples.
std::string to_text(const ExamResult& result, bool colour = false);
nlohmann::json to_json(const ExamResult& result);
/// What the user says last in a conversation that a chat template has written; as it is where there is none.
std::string plain_question(const std::string& shown, const ChatConfig& chat);

}  // namespace tightloop::cli
