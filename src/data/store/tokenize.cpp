#include "data/store/tokenize.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "core/interrupt.h"
#include "core/terminal/progress_line.h"
#include "core/terminal/terminal.h"
#include "core/threads.h"
#include "data/prefetcher.h"

namespace tightloop {

namespace {

constexpr size_t kKept = 1 << 11;        // ids of a record whose memory is kept for the next one
constexpr size_t kRoundBytes = 1 << 20;  // a thread takes so much at once, or one record

// What a thread takes at once.
struct Round {
  RecordBatch records;
  std::vector<Rendered> rendered;
  uint64_t first = 0;  // number of the first record, over all files
  size_t skipped = 0;  // records of an earlier run
};

// Hands out the records in order to threads that come in any order.
class InTurn {
 public:
  InTurn(RecordReader& reader, const TokenizeOptions& options) : reader_(reader), options_(options) {}

  // Fills the round with this number, after those before it; nothing at the end.
  void read(int64_t number, Round& round) {
    round.records.clear();
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return next_ == number; });
    const auto pass_on = [&] {
      ++next_;
      turn_.notify_all();
    };
    try {
      if (!ended_) ended_ = !reader_.read(round.records, options_.batch, kRoundBytes);
    } catch (...) {
      ended_ = true;
      pass_on();
      throw;
    }
    round.first = passed_;
    round.skipped =
        std::min<uint64_t>(round.records.size(), options_.skip - std::min(options_.skip, passed_));
    passed_ += round.records.size();
    pass_on();
  }

 private:
  RecordReader& reader_;
  const TokenizeOptions& options_;
  std::mutex mutex_;
  std::condition_variable turn_;
  int64_t next_ = 0;
  uint64_t passed_ = 0;
  bool ended_ = false;
};

}  // namespace

void tokenize(RecordReader& reader, const Renderer& renderer, const TokenizeOptions& options, BadRecords& bad,
              const std::function<bool(const Record&, const Rendered&)>& emit) {
  const int threads = options.threads > 0 ? options.threads : available_cores();
  std::vector<Round> rounds(2 * threads + 2);
  InTurn records(reader, options);
  Prefetcher prefetcher(threads, static_cast<int>(rounds.size()), 0, -1, [&](int64_t number, int slot) {
    Round& round = rounds[slot];
    records.read(number, round);
    if (round.rendered.size() < round.records.size()) round.rendered.resize(round.records.size());
    for (size_t i = round.skipped; i < round.records.size(); ++i)
      renderer.render(round.records[i], round.rendered[i]);
  });
  std::atomic<uint64_t> tokens{0};
  ProgressLine progress(options.doing, reader.total_bytes());
  progress.count_from([&] { return reader.bytes_read(); });
  progress.note_from([&] { return human_count(static_cast<double>(tokens)) + " tokens"; });
  for (;;) {
    Round& round = rounds[prefetcher.next()];
    throw_if_interrupted();
    if (round.records.size() == 0) return;
    for (size_t i = round.skipped; i < round.records.size(); ++i) {
      Record record = round.records[i];
      Rendered& rendered = round.rendered[i];
      record.index = round.first + i;
      if (rendered.bad != BadKind::kNone) {
        bad.add(rendered.bad, reader.files()[record.file], record.line, record.byte, rendered.why,
                record.size());
      } else {
        bad.add_good(record.size());
        tokens += rendered.ids.size() + rendered.second.size();
        if (!emit(record, rendered)) return;
      }
      if (rendered.ids.capacity() > kKept) rendered = {};
    }
  }
}

}  // namespace tightloop
