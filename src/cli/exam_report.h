#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "infer/exam.h"

namespace tightloop::cli {

/// Accuracy by task as a table, and the examples.
std::string to_text(const ExamResult& result, bool colour = false);
nlohmann::json to_json(const ExamResult& result);

}  // namespace tightloop::cli
