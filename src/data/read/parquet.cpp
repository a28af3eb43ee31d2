#include "data/read/parquet.h"

#include <dlfcn.h>

#include "core/error.h"
#include "core/plugin.h"

namespace tightloop {

namespace {

void* load_symbol(const char* name) {
  const fs::path path = plugin_path(kParquetPlugin);
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* symbol = library ? ::dlsym(library, name) : nullptr;
  if (!symbol) {
    throw data_error(
        "Parquet files need the plug-in '{}', which cannot be loaded ({}). Run {} (a checkout is then built "
        "again), or convert the files to JSONL.",
        path.string(), ::dlerror(), setup_command());
  }
  return symbol;
}

}  // namespace

std::unique_ptr<RecordReader> open_parquet(const std::vector<fs::path>& paths,
                                           const std::vector<std::string>& columns, uint64_t max_bytes) {
  static const auto factory = reinterpret_cast<ParquetFactory>(load_symbol(kParquetFactory));
  return std::unique_ptr<RecordReader>(factory(paths, columns, max_bytes));
}

void write_parquet(const fs::path& path, const std::string& json_lines) {
  static const auto write = reinterpret_cast<ParquetWriter>(load_symbol(kParquetWriter));
  write(path, json_lines);
}

}  // namespace tightloop
