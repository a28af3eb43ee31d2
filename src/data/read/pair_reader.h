#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/read/line_reader.h"
#include "data/read/record.h"

namespace tightloop {

/// Pairs from files that correspond line by line: line n of targets[i] is the translation of line n of
/// sources[i]. An empty line on either side is a bad record of its own; lines that one file has more than the
/// other are unpaired and, where they `must_agree` and such a line is not empty, a data error: a line that is
/// missing in the middle shifts all pairs after it.
class ParallelRecords : public RecordReader {
 public:
  ParallelRecords(std::vector<fs::path> sources, std::vector<fs::path> targets, uint64_t max_bytes,
                  bool must_agree);
  bool read(RecordBatch& batch, size_t records, size_t bytes) override;
  const std::vector<std::string>& files() const override { return names_; }

 private:
  /// That the files at hand have other numbers of lines.
  Error different_lengths();

  std::vector<fs::path> sources_, targets_;
  std::vector<std::string> names_;  // the sources, then the targets
  uint64_t max_bytes_;
  bool must_agree_;
  size_t file_ = 0;
  std::unique_ptr<LineReader> source_, target_;
  uint64_t source_lines_ = 0, target_lines_ = 0;  // of those, so far
};

/// Pairs from lines of two tab-separated columns; further columns are left alone.
class TsvRecords : public LineRecords {
 public:
  using LineRecords::LineRecords;

 protected:
  void split(Record& record) const override;
};

}  // namespace tightloop
