#include "data/generate/generated_records.h"

#include <utility>
#include <vector>

#include "data/read/held_out.h"

namespace tightloop {

namespace {

class GeneratedReader : public RecordReader {
 public:
  GeneratedReader(const std::string& name, const TasksConfig& config, bool held_out,
                  std::function<GeneratedRecord(Random&)> generate)
      : names_{name},
        config_(config),
        held_out_(held_out),
        generate_(std::move(generate)),
        total_(held_out ? config.held_out : config.questions) {
    if (held_out && config.held_out_share <= 0) total_ = 0;
  }

  bool read(RecordBatch& batch, size_t records, size_t bytes) override {
    const size_t before = batch.size();
    for (; next_ < total_ && batch.size() < records && batch.bytes() < bytes; ++next_) {
      Random random(config_.seed, held_out_ ? ~static_cast<uint64_t>(next_) : next_);
      GeneratedRecord made;
      do made = generate_(random);
      while (is_held_out(made.key, config_.held_out_share) != held_out_);
      Record record;
      record.bytes = made.json;
      record.line = next_ + 1;
      batch.add(record);
    }
    return batch.size() > before;
  }
  const std::vector<std::string>& files() const override { return names_; }

 private:
  std::vector<std::string> names_;
  TasksConfig config_;
  bool held_out_;
  std::function<GeneratedRecord(Random&)> generate_;
  int64_t total_, next_ = 0;
};

}  // namespace

std::unique_ptr<RecordReader> make_generated_reader(const std::string& name, const TasksConfig& config,
                                                    bool held_out,
                                                    std::function<GeneratedRecord(Random&)> generate) {
  return std::make_unique<GeneratedReader>(name, config, held_out, std::move(generate));
}

}  // namespace tightloop
