#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/files.h"
#include "data/read/record.h"

namespace tightloop {

/// The first characters that are no white space, two at most.
std::string first_marks(std::string_view head);

/// Whether a file that begins so, or this file, holds JSON objects, one a line or as a list.
bool opens_records(std::string_view marks);
bool holds_json_records(const fs::path& path);

/// Records of JSON files. Each file is read by its own shape: a list, an object a line, or objects one after
/// the other, over as many lines as they like.
std::unique_ptr<RecordReader> read_json_files(const std::vector<fs::path>& paths, uint64_t max_bytes);

}  // namespace tightloop
