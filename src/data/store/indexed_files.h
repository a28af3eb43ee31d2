#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/files.h"
#include "data/store/kept_records.h"
#include "data/store/record_index.h"

namespace tightloop {

/// Raw files, read again at random by their index.
class IndexedFiles {
 public:
  IndexedFiles(std::vector<fs::path> files, std::shared_ptr<const KeptReader> kept);
  ~IndexedFiles();
  /// A data error names a file that can no longer be read so far. Safe from many threads.
  void read(const IndexEntry& entry, char* to) const;
  /// For messages.
  std::string name(const IndexEntry& entry) const;

 private:
  class OpenFile;
  struct Recent;
  std::shared_ptr<const OpenFile> open(uint32_t file) const;

  std::vector<fs::path> files_;
  std::shared_ptr<const KeptReader> kept_;
  std::unique_ptr<Recent> recent_;
};

}  // namespace tightloop
