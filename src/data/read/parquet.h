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

/// What the plug-in exports under the name kParquetFactory.
using ParquetFactory = RecordReader* (*)(const std::vector<fs::path>& paths,
                                         const std::vector<std::string>& columns, uint64_t max_bytes);
inline constexpr const char* kParquetPlugin = "libtightloop_parquet.so";
inline constexpr const char* kParquetFactory = "tightloop_open_parquet";

}  // namespace tightloop
