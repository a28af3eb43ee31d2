#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "infer/exam.h"
#include "infer/suite/suite.h"

namespace tightloop::cli {

/// Accuracy by task as a table, and the examples.
std::string to_text(const ExamResult& result, bool colour = false);
nlohmann::json to_json(const ExamResult& result);

/// A table for people, and the same for programs.
std::string to_text(const SuiteResult& result);
nlohmann::json to_json(const SuiteResult& result);
/// One problem a line: {"task", "problem", "right"} and what was compared.
std::string details_of(const SuiteResult& result);

}  // namespace tightloop::cli
