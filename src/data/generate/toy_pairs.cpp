#include "data/generate/toy_pairs.h"

#include <fmt/core.h>

#include <array>
#include <string>
#include <string_view>

#include "data/generate/generated_records.h"
#include "data/read/json_text.h"

namespace tightloop {

namespace {

struct ToyWord {
  const char *ours, *theirs;
};
constexpr std::array<ToyWord, 12> kNouns{{{"dog", "bako"},
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
constexpr std::array<ToyWord, 10> kAdjectives{{{"red", "ruk"},
                                               {"small", "tin"},
                                               {"old", "var"},
                                               {"green", "lesh"},
                                               {"happy", "joma"},
                                               {"cold", "fris"},
                                               {"quiet", "shu"},
                                               {"bright", "kel"},
                                               {"wild", "garo"},
                                               {"young", "nim"}}};
constexpr std::array<ToyWord, 8> kVerbs{{{"sees", "wati"},
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
  const ToyWord& noun = kNouns[random.below(kNouns.size())];
  const bool plural = random.below(3) == 0;
  std::string adjectives, theirs;
  const ToyWord* before = nullptr;
  for (uint64_t i = random.below(3); i > 0; --i) {
    const ToyWord& adjective = kAdjectives[random.below(kAdjectives.size())];
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
  const ToyWord& verb = kVerbs[random.below(kVerbs.size())];
  return {fmt::format("{} {} {}.", subject.ours, verb.ours, object.ours),
          fmt::format("{} o {} {}.", subject.theirs, object.theirs, verb.theirs)};
}

GeneratedRecord pair(Random& random) {
  const Phrase made = sentence(random);
  std::string json(1, '[');
  append_json_string(made.ours, json);
  json += ',';
  append_json_string(made.theirs, json);
  json += ']';
  return {made.ours, json};
}

}  // namespace

std::unique_ptr<RecordReader> make_toy_pair_reader(const TasksConfig& config, bool held_out) {
  return make_generated_reader("toy_pairs", config, held_out, pair);
}

}  // namespace tightloop
