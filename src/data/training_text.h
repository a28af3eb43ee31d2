#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "data/data_config.h"
#include "data/generate/tasks.h"
#include "data/read/bad_records.h"
#include "data/read/record.h"

namespace tightloop {

/// Of pairs: whose sentences.
enum class PairSide { kBoth, kSource, kTarget };
template <>
inline constexpr auto kChoices<PairSide> = std::to_array<Choice<PairSide>>({
    {PairSide::kBoth, "both"},
    {PairSide::kSource, "source"},
    {PairSide::kTarget, "target"},
});

/// The first `size` bytes of a longer text, without a part of a character at their end.
std::string_view whole_characters_of(std::string_view bytes, size_t size);

/// The plain texts of the train part, one after the other: what a tokenizer of one's own is trained on. Of
/// conversations, the words of all turns. Held-out documents are left out; of a held-out tail, as large
/// a fraction of the bytes.
class TrainingText {
 public:
  /// Sources without texts (shards) are a usage error that says what to do.
  TrainingText(const DataConfig& config, const TasksConfig& tasks, PairSide side = PairSide::kBoth);
  /// The next text (a long document comes in pieces), false after the last.
  bool next(std::string& text);
  /// The files' records, for a line of progress.
  const RecordReader& reader() const { return *reader_; }
  /// What was left out so far, and how many documents were good; held-out ones count too.
  const BadRecords& bad() const { return bad_; }
  uint64_t good() const { return good_; }

 private:
  void make_text(const Record& record, std::string& text);

  std::unique_ptr<RecordReader> reader_;
  std::function<void(const Record&, std::string&)> of_json_;  // where records are JSON
  std::function<void(const Record&, std::string&, std::string&)> of_pair_;
  const PairSide side_;
  std::string translation_;  // of the source that was given out last, still to come
  double val_share_;
  uint64_t left_ = ~uint64_t{0};  // bytes before a held-out tail
  RecordBatch batch_;
  size_t at_ = 0;
  bool held_out_ = false;  // the document whose pieces are coming
  BadRecords bad_;
  uint64_t good_ = 0;
};

}  // namespace tightloop
