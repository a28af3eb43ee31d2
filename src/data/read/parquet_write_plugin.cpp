// Part of libtightloop_parquet.so: JSON records as a Parquet file. Called by data/read/parquet.cpp.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/io/memory.h>
#include <arrow/json/api.h>
#include <parquet/arrow/writer.h>

#include <algorithm>

#include "core/error.h"
#include "data/read/parquet.h"

namespace tightloop {

namespace {

constexpr int64_t kRowGroup = 1024;  // rows

template <class T>
T value_or_throw(arrow::Result<T> result, const fs::path& path) {
  if (!result.ok()) throw data_error("cannot write '{}': {}.", path.string(), result.status().ToString());
  return result.MoveValueUnsafe();
}

}  // namespace

}  // namespace tightloop

extern "C" void tightloop_write_parquet(const tightloop::fs::path& path, const std::string& json_lines) {
  using namespace tightloop;
  auto reading = arrow::json::ReadOptions::Defaults();
  reading.use_threads = false;
  reading.block_size =
      static_cast<int32_t>(std::max<size_t>(json_lines.size() + 1, 1 << 20));  // one block, one type
  const auto input = std::make_shared<arrow::io::BufferReader>(arrow::Buffer::FromString(json_lines));
  const auto reader =
      value_or_throw(arrow::json::TableReader::Make(arrow::default_memory_pool(), input, reading,
                                                    arrow::json::ParseOptions::Defaults()),
                     path);
  const auto table = value_or_throw(reader->Read(), path);
  const auto file = value_or_throw(arrow::io::FileOutputStream::Open(path.string()), path);
  const auto written = parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), file, kRowGroup);
  if (!written.ok() || !file->Close().ok())
    throw data_error("cannot write '{}': {}.", path.string(), written.ToString());
}
