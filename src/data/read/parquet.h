#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/files.h"
#include "data/read/record.h"

namespace tightloop {

/// The rows of Parquet files as JSON records with only these columns (those that a file has), by row group.
/// The reader is a plug-in, loaded on first use, so that the program runs where Arrow is not; a data error
/// says what to do then.
std::unique_ptr<RecordReader> open_parquet(const std::vector<fs::path>& paths,
                                           const std::vector<std::string>& columns, uint64_t max_bytes);

/// JSON records, one a line, as a Parquet file, a column for each field, in row groups of 1,024. The types of
/// columns are those of all records together; ones that do not agree are a data error.
void write_parquet(const fs::path& path, const std::string& json_lines);

/// What the plug-in exports under the name kParquetFactory.
using ParquetFactory = RecordReader* (*)(const std::vector<fs::path>& paths,
                                         const std::vector<std::string>& columns, uint64_t max_bytes);
inline constexpr const char* kParquetPlugin = "libtightloop_parquet.so";
inline constexpr const char* kParquetFactory = "tightloop_open_parquet";
using ParquetWriter = void (*)(const fs::path& path, const std::string& json_lines);
inline constexpr const char* kParquetWriter = "tightloop_write_parquet";

}  // namespace tightloop
