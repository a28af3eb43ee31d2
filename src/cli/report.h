#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "infer/exam.h"

namespace tightloop::cli {

/// The share of right answers by task as a table, and the examples.
std::string to_text(const ExamResult& result, bool colour = false);
nlohmann::json to_json(const ExamResult& result);

/// JSON as text; bytes that are not UTF-8 become U+FFFD.
std::string dump(const nlohmann::json& json, int indent = 2);

/// `what 12/80 ███░░░` as the live line of the terminal.
void show_progress(const std::string& what, size_t done, size_t total);

}  // namespace tightloop::cli
