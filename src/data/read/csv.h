#pragma once

#include <string>
#include <vector>

#include "core/files.h"

namespace tightloop {

/// A sentence about the first of the files that is a CSV table: its columns, and the command that makes JSONL
/// of it. Known by the ending .csv (before .gz and .zst too) and a row of names that the others agree with in
/// length. Empty where there is none.
std::string csv_advice(const std::vector<fs::path>& paths);

/// A data error where one of the files is a CSV table, with that sentence.
void refuse_csv(const std::vector<fs::path>& paths);

}  // namespace tightloop
