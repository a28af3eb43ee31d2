#include "data/read/pair_reader.h"

#include <utility>

#include "core/error.h"
#include "data/read/bad_records.h"

namespace tightloop {

using Status = LineReader::Status;

namespace {
bool is_a_line(Status status) { return status == Status::kLine || status == Status::kTooLong; }
}  // namespace

ParallelRecords::ParallelRecords(std::vector<fs::path> sources, std::vector<fs::path> targets,
                                 uint64_t max_bytes, bool must_agree)
    : sources_(std::move(sources)),
      targets_(std::move(targets)),
      max_bytes_(max_bytes),
      must_agree_(must_agree) {
  if (sources_.size() != targets_.size()) {
    throw data_error("there are {} files of source sentences and {} of translations.", sources_.size(),
                     targets_.size());
  }
  for (const fs::path& path : sources_) names_.push_back(path.string());
  for (const fs::path& path : targets_) names_.push_back(path.string());
}

Error ParallelRecords::different_lengths() {
  const auto count = [](LineReader& reader, uint64_t& lines) {
    for (Status status = reader.next(); is_a_line(status); status = reader.next()) ++lines;
  };
  count(*source_, source_lines_), count(*target_, target_lines_);
  return data_error(
      "'{}' has {} lines and '{}' has {}: line n of one is the translation of line n of the other, so that "
      "all pairs after a missing line are wrong. Mend the files, or take the lines that both have: {}.",
      sources_[file_ - 1].string(), source_lines_, targets_[file_ - 1].string(), target_lines_, kSkipThem);
}

bool ParallelRecords::read(RecordBatch& batch, size_t records, size_t bytes) {
  const size_t before = batch.size();
  while (batch.size() < records && batch.bytes() < bytes) {
    if (!source_) {
      if (file_ == sources_.size()) break;
      source_ = std::make_unique<LineReader>(sources_[file_], max_bytes_, &bytes_read_);
      target_ = std::make_unique<LineReader>(targets_[file_], max_bytes_, &bytes_read_);
      ++file_;
      source_lines_ = target_lines_ = 0;
    }
    const Status left = source_->next(), right = target_->next();
    const bool left_gone = !is_a_line(left), right_gone = !is_a_line(right);
    source_lines_ += !left_gone, target_lines_ += !right_gone;
    const LineReader& reader = left_gone ? *target_ : *source_;
    Record record;
    record.file = static_cast<uint32_t>(left_gone && !right_gone ? sources_.size() + file_ - 1 : file_ - 1);
    record.line = reader.number();
    record.byte = reader.byte();
    record.lost = source_->passed() + target_->passed();
    if (left == Status::kBroken || right == Status::kBroken) {
      record.bad = BadKind::kBrokenFile;
      record.bytes = left == Status::kBroken ? source_->line() : target_->line();
      record.lost += left == Status::kBroken ? target_->left() : source_->left();
    } else if (left_gone != right_gone) {
      const bool empty = (left_gone ? right : left) == Status::kLine && reader.line().empty();
      if (must_agree_ && !empty) throw different_lengths();
      record.bad = BadKind::kUnpaired;
      record.bytes = "the other file has no such line";
    } else if (left == Status::kTooLong || right == Status::kTooLong) {
      record.bad = BadKind::kTooLong;
      record.bytes = "longer than data.max_record_bytes";
    } else if (!left_gone) {
      record.bytes = source_->line();
      record.second = target_->line();
      record.second_file = static_cast<uint32_t>(sources_.size() + file_ - 1);
      record.second_byte = target_->byte();
    }
    if (!left_gone || !right_gone || record.bad != BadKind::kNone) batch.add(record);
    if (left == Status::kBroken || right == Status::kBroken || (left_gone && right_gone)) {
      source_.reset();
      target_.reset();
    }
  }
  return batch.size() > before;
}

void TsvRecords::split(Record& record) const {
  const size_t tab = record.bytes.find('\t');
  if (tab == record.bytes.npos) {
    record.bad = BadKind::kUnpaired;
    record.bytes = "no tab in the line";
    return;
  }
  record.second_file = record.file;
  record.second_byte = record.byte + tab + 1;
  record.second = record.bytes.substr(tab + 1);
  record.second = record.second.substr(0, record.second.find('\t'));
  record.bytes = record.bytes.substr(0, tab);
}

}  // namespace tightloop
