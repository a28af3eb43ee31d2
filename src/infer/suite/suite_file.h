#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "infer/suite/suite_task.h"

namespace tightloop {

/// Tasks that are measured together.
struct Suite {
  std::string name;
  std::vector<SuiteTask> tasks;
};

/// Reads a suite and all of its problems: a YAML file with a list `tasks` (and defaults for them in a mapping
/// `suite`), or nanochat's core.yaml (a list `icl_tasks`) beside its eval_data and eval_meta_data.csv.
/// `limit`: most problems of each task; 0: as the file says. What is wrong is a usage or a data error.
Suite read_suite(const std::filesystem::path& file, int64_t limit = 0);

}  // namespace tightloop
