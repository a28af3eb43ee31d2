#include "data/tokenize.h"

#include <algorithm>
#include <future>

#include "core/threads.h"

namespace tightloop {

namespace {
constexpr size_t kKept = 1 << 11;        // ids of a record whose memory is kept for the next one
constexpr size_t kRoundBytes = 8 << 20;  // two rounds are in memory: one is read while the other is rendered
}  // namespace

void tokenize(RecordReader& reader, const Renderer& renderer, const TokenizeOptions& options, BadRecords& bad,
              const std::function<bool(const Record&, const Rendered&)>& emit) {
  const int threads = options.threads > 0 ? options.threads : available_cores();
  const size_t records =
      static_cast<size_t>(options.batch) * threads * 32;  // long rounds: threads keep their caches warm
  RecordBatch rounds[2];
  std::vector<Rendered> rendered;
  uint64_t passed = 0;
  const auto read_round = [&](RecordBatch& round) {
    round.clear();
    return reader.read(round, records, kRoundBytes);
  };
  bool more = read_round(rounds[0]);
  for (int current = 0; more; current ^= 1) {
    auto reading =
        std::async(std::launch::async, [&, next = current ^ 1] { return read_round(rounds[next]); });
    const RecordBatch& round = rounds[current];
    const size_t skipped = std::min<uint64_t>(round.size(), options.skip - std::min(options.skip, passed));
    passed += round.size();
    if (rendered.size() < round.size()) rendered.resize(round.size());
    const size_t count = round.size() - skipped;
    const size_t grain = std::clamp<size_t>(count / (threads * 4), 1, options.batch);
    parallel_for(count, threads, grain, [&](size_t begin, size_t end, int) {
      for (size_t i = begin; i < end; ++i) renderer.render(round[skipped + i], rendered[skipped + i]);
    });
    for (size_t i = skipped; i < round.size(); ++i) {
      Record record = round[i];
      record.index = passed - round.size() + i;
      if (rendered[i].bad != BadKind::kNone) {
        bad.add(rendered[i].bad, reader.files()[record.file], record.line, record.byte, rendered[i].why);
      } else if (!emit(record, rendered[i])) {
        return;  // the future's destructor waits for the reader
      }
      if (rendered[i].ids.capacity() > kKept) rendered[i] = {};
    }
    more = reading.get();
  }
}

}  // namespace tightloop
