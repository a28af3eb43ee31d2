#include "data/training_text.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/interrupt.h"
#include "data/read/held_out.h"
#include "data/render/render.h"
#include "data/store/held_out_tail.h"
#include "data/store/source.h"

namespace tightloop {

namespace {

/// Of the records before the tail.
uint64_t bytes_before_tail(const DataConfig& config) {
  uint64_t bytes = 0;
  RecordBatch batch;
  for (const auto reader = open_records(config, {}, /*val=*/false); reader->read(batch, 256, 1 << 20);
       batch.clear()) {
    throw_if_interrupted();
    for (size_t i = 0; i < batch.size(); ++i) bytes += batch[i].bytes.size();
  }
  return static_cast<uint64_t>(static_cast<double>(bytes) * (1 - config.holdout));
}

}  // namespace

std::string_view whole_characters_of(std::string_view bytes, size_t size) {
  while (size > 0 && (static_cast<uint8_t>(bytes[size]) & 0xc0) == 0x80) --size;
  return bytes.substr(0, size);
}

TrainingText::TrainingText(const DataConfig& config, const TasksConfig& tasks, PairSide side)
    : side_(side),
      val_share_(config.val.empty() && !holds_out_tail(config) ? config.holdout : 0),
      bad_(config.on_bad_record == OnBadRecord::kFail) {
  const RecordKind records = records_of(config.source);
  // Spellings are for a model that has learned words already: a fine-tune without its parent.
  if (records == RecordKind::kNone || config.source == DataSource::kSpelling)
    throw usage_error(
        "a tokenizer cannot be trained on data.source '{}'. Train one on text or JSONL with 'tightloop "
        "tokenizer train', then name it with --tokenizer.path.",
        name_of(config.source));
  if (config.generated())
    val_share_ = 0;
  else if (config.train.empty())
    throw usage_error("data.train names no file to learn from.");
  reader_ = open_records(config, tasks, /*val=*/false);
  if (holds_out_tail(config)) left_ = bytes_before_tail(config);
  if (records == RecordKind::kPair) of_pair_ = make_pair_texts(config, pairs_are_json(config));
  if (records == RecordKind::kJson) of_json_ = make_json_texts(config);
}

bool TrainingText::next(std::string& text) {
  if (!translation_.empty()) {
    text = std::exchange(translation_, {});
    return true;
  }
  for (;;) {
    if (at_ == batch_.size()) {
      throw_if_interrupted();
      batch_.clear();
      at_ = 0;
      if (!reader_->read(batch_, /*records=*/256, /*bytes=*/1 << 20)) return false;
    }
    Record record = batch_[at_++];
    if (record.bad == BadKind::kNone && record.first) held_out_ = is_held_out(record.bytes, val_share_);
    bool in_tail = false;
    if (record.bytes.size() > left_ && record.bad == BadKind::kNone) {  // the tail begins in it, or has begun
      const auto before = of_json_ ? std::string_view() : whole_characters_of(record.bytes, left_);
      left_ = 0, in_tail = before.empty();
      if (!in_tail) record.bytes = before;
    } else {
      left_ -= std::min<uint64_t>(left_, record.bytes.size());
    }
    try {
      make_text(record, text);
      bad_.add_good(record.size());
      good_ += record.last;
      if (!held_out_ && !in_tail) return true;
      translation_.clear();  // what is held out is counted, and not given out
    } catch (const BadRecord& bad) {
      translation_.clear();
      bad_.add(bad.kind, reader_->files()[record.file], record.line, record.byte, bad.why, record.size());
    }
  }
}

void TrainingText::make_text(const Record& record, std::string& text) {
  if (record.bad != BadKind::kNone) throw BadRecord{record.bad, std::string(record.bytes)};
  if (of_pair_) {
    of_pair_(record, text, translation_);
    if (side_ == PairSide::kTarget) text.swap(translation_);
    if (side_ != PairSide::kBoth) translation_.clear();
  } else if (of_json_) {
    of_json_(record, text);
  } else {
    demand_text(record.bytes);
    text = record.bytes;
  }
}

}  // namespace tightloop
