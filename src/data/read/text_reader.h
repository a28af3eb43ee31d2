#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/data_config.h"
#include "data/read/byte_stream.h"
#include "data/read/record.h"

namespace tightloop {

struct TextOptions {
  DocumentEnd documents = DocumentEnd::kBlankLine;
  std::string separator{};
  uint64_t max_document = uint64_t{64} << 20;  // a longer one is cut into several
  /// Longer documents come as several records, so that one document can keep all threads busy. Cuts are made
  /// where tokenizers cut too: after a line end, or before a space between two words.
  uint64_t piece = uint64_t{1} << 20;
};

/// Documents of text files. Documents of nothing but white space are left out; a byte order mark too.
class TextReader : public RecordReader {
 public:
  TextReader(std::vector<fs::path> paths, TextOptions options);

  bool read(RecordBatch& batch, size_t records, size_t bytes) override;
  const std::vector<std::string>& files() const override { return names_; }

 private:
  struct Cut {
    size_t end, next;  // the text ends here, and goes on there
    bool ends_document;
  };

  bool open_next();
  void fill();
  bool find_cut(Cut& cut);
  size_t find_end(size_t& next) const;
  size_t piece_end(size_t limit) const;
  void emit(const Cut& cut, RecordBatch& batch);

  const TextOptions options_;
  std::vector<fs::path> paths_;
  std::vector<std::string> names_;
  size_t file_ = 0;  // of the next one to open
  std::unique_ptr<ByteStream> stream_;
  std::string buffer_;
  size_t used_ = 0;  // bytes of the buffer that are done with
  bool at_end_ = false, first_ = true;
  std::string failure_;  // why the file could not be read to its end
  uint64_t line_ = 1, byte_ = 0, document_bytes_ = 0;
};

}  // namespace tightloop
