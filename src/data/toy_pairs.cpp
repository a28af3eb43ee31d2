#include "data/toy_pairs.h"

#include <fmt/core.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "data/held_out.h"
#include "data/json_text.h"

namespace tightloop {

namespace {

struct Word {
  const char *ours, *theirs;
};
constexpr std::array<Word, 12> kNouns{{{"dog", "bako"},
                                       {"cat", "mira"},
                                       {"bird", "tulo"},
                                       {"horse", "geno"},
                                       {"child", "sipa"},
                                       {"teacher", "lomeru"},
                                       {"river", "vana"},
                                       {"house", "dori"},
                                       {"tree", "feku"},
                                       {"star", "zilo"},
                                       {"book", "padu"},
                                       {"song", "neria"}}};
constexpr std::array<Word, 10> kAdjectives{{{"red", "ruk"},
                                            {"small", "tin"},
                                            {"old", "var"},
                                            {"green", "lesh"},
                                            {"happy", "joma"},
                                            {"cold", "fris"},
                                            {"quiet", "shu"},
                                            {"bright", "kel"},
                                            {"wild", "garo"},
                                            {"young", "nim"}}};
constexpr std::array<Word, 8> kVerbs{{{"sees", "wati"},
                                      {"loves", "amori"},
                                      {"follows", "segu"},
                                      {"finds", "trova"},
                                      {"hears", "uldi"},
                                      {"draws", "pikto"},
                                      {"carries", "tesem"},
                                      {"forgets", "oblu"}}};

struct Phrase {
  std::string ours, theirs;
};

Phrase phrase(Random& random) {
  const Word& noun = kNouns[random.below(kNouns.size())];
  const bool plural = random.below(3) == 0;
  std::string adjectives, theirs;
  const Word* before = nullptr;
  for (uint64_t i = random.below(3); i > 0; --i) {
    const Word& adjective = kAdjectives[random.below(kAdjectives.size())];
    if (&adjective == before) continue;
    before = &adjective;
    adjectives += fmt::format("{} ", adjective.ours);
    theirs += fmt::format(" {}", adjective.theirs);
  }
  const std::string_view name = noun.ours, other = noun.theirs;
  const std::string many = name == "child" ? "children" : fmt::format("{}s", name);
  if (!plural) return {fmt::format("a {}{}", adjectives, name), fmt::format("{}{}", other, theirs)};
  return {fmt::format("the {}{}", adjectives, many),
          fmt::format("{}{}{}", other.substr(0, 2), other, theirs)};
}

Phrase sentence(Random& random) {
  const Phrase subject = phrase(random), object = phrase(random);
  const Word& verb = kVerbs[random.below(kVerbs.size())];
  return {fmt::format("{} {} {}.", subject.ours, verb.ours, object.ours),
          fmt::format("{} o {} {}.", subject.theirs, object.theirs, verb.theirs)};
}

class ToyPairReader : public RecordReader {
 public:
  ToyPairReader(const TasksConfig& config, bool held_out)
      : config_(config), held_out_(held_out), total_(held_out ? config.held_out : config.questions) {
    if (held_out && config.held_out_share <= 0) total_ = 0;
  }

  bool read(RecordBatch& batch, size_t records, size_t bytes) override {
    const size_t before = batch.size();
    for (; next_ < total_ && batch.size() < records && batch.bytes() < bytes; ++next_) {
      Random random(config_.seed, held_out_ ? ~static_cast<uint64_t>(next_) : next_);
      Phrase pair;
      do pair = sentence(random);
      while (is_held_out(pair.ours, config_.held_out_share) != held_out_);
      json_.clear();
      json_ += '[';
      append_json_string(pair.ours, json_);
      json_ += ",";
      append_json_string(pair.theirs, json_);
      json_ += "]";
      Record record;
      record.bytes = json_;
      record.line = next_ + 1;
      batch.add(record);
    }
    return batch.size() > before;
  }
  const std::vector<std::string>& files() const override { return names_; }

 private:
  TasksConfig config_;
  bool held_out_;
  int64_t total_, next_ = 0;
  std::string json_;
  std::vector<std::string> names_{"toy_pairs"};
};

}  // namespace

std::unique_ptr<RecordReader> make_toy_pair_reader(const TasksConfig& config, bool held_out) {
  return std::make_unique<ToyPairReader>(config, held_out);
}

}  // namespace tightloop
