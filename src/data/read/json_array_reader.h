#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/read/byte_stream.h"
#include "data/read/record.h"

namespace tightloop {

/// The elements of files that each hold one JSON list, one element a record, read from front to back: the
/// list may be larger than memory. An element that is not JSON is left for the renderer to refuse; the next
/// one starts at the next comma on the list's own level. `bare`: files hold objects one after the other,
/// without the list around them, over as many lines as they like.
class JsonArrayRecords : public RecordReader {
 public:
  JsonArrayRecords(std::vector<fs::path> paths, uint64_t max_bytes, bool bare = false);
  bool read(RecordBatch& batch, size_t records, size_t bytes) override;
  const std::vector<std::string>& files() const override { return names_; }

 private:
  bool open_next();
  void take(RecordBatch& batch, BadKind bad, std::string_view bytes, uint64_t rest = 0);
  void scan(RecordBatch& batch);

  std::vector<fs::path> paths_;
  std::vector<std::string> names_;
  uint64_t max_bytes_;
  const bool bare_;
  size_t file_ = 0;
  std::unique_ptr<ByteStream> stream_;
  std::string chunk_;
  size_t at_ = 0;
  std::string element_;
  uint64_t line_ = 1, byte_ = 0, first_line_ = 1, first_byte_ = 0;
  int depth_ = 0;  // 0: before or after the list; bare objects stand on level 1
  bool in_string_ = false, escaped_ = false, too_long_ = false, ended_ = false;
};

}  // namespace tightloop
