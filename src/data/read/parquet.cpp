#include "data/read/parquet.h"

#include <dlfcn.h>

#include "core/error.h"
#include "core/plugin.h"

namespace tightloop {

namespace {

ParquetFactory load_factory() {
  const fs::path path = plugin_path(kParquetPlugin);
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* factory = library ? ::dlsym(library, kParquetFactory) : nullptr;
  if (!factory) {
    throw data_error(
        "Parquet files need the plug-in '{}', which cannot be loaded ({}). Run {} (a checkout is then built "
        "again), or convert the files to JSONL.",
        path.string(), ::dlerror(), setup_command());
  }
  return reinterpret_cast<ParquetFactory>(factory);
}

}  // namespace

std::unique_ptr<RecordReader> open_parquet(const std::vector<fs::path>& paths,
                                           const std::vector<std::string>& columns, uint64_t max_bytes) {
  static const ParquetFactory factory = load_factory();
  return std::unique_ptr<RecordReader>(factory(paths, columns, max_bytes));
}

}  // namespace tightloop
