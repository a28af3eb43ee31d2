#include "data/batch/show.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "core/terminal/terminal.h"

namespace tightloop {

namespace {

constexpr const char* kLearned = "\033[32m";
constexpr const char* kPlain = "\033[0m";

}  // namespace

std::string show_row(const Batch& batch, int64_t row, const Tokenizer& tokenizer, bool colour) {
  const char* const open = colour ? kLearned : "[";
  const char* const close = colour ? kPlain : "]";
  const int64_t first = row * batch.length;
  const auto add = [&](std::string& out, const std::vector<int32_t>& ids, bool learned) {
    if (ids.empty()) return;
    const std::string text = printable(tokenizer.decode(ids));
    out += learned ? open + text + close : text;
  };
  std::string out;
  // Padding is a document in which nothing is learned and every token is the same.
  const auto is_padding = [&](const int32_t* bound) {
    const int64_t begin = bound[0], end = bound[1];
    const int32_t pad = batch.targets[begin];
    return end % batch.length == 0 &&
           std::all_of(batch.inputs + begin, batch.inputs + end, [&](int32_t id) { return id == pad; }) &&
           std::all_of(batch.targets + begin, batch.targets + end, [&](int32_t id) { return id == pad; }) &&
           std::all_of(batch.loss_mask + begin, batch.loss_mask + end, [](uint8_t m) { return m == 0; });
  };
  const int32_t* const last = batch.bounds + batch.documents;
  const int32_t* bound = std::upper_bound<const int32_t*>(batch.bounds, last + 1, first) - 1;
  for (; bound < last && *bound < first + batch.length && !is_padding(bound); ++bound) {
    const int64_t begin = bound[0];
    int64_t end = bound[1];
    // In a padded row the last token predicts nothing: its target is padding.
    const bool before_padding = end < first + batch.length && bound + 1 < last && is_padding(bound + 1);
    if (before_padding && !batch.loss_mask[end - 1] && batch.targets[end - 1] == batch.inputs[end]) --end;
    if (begin > first) out += colour ? "\033[1m|\033[0m" : "|";
    // The first token is only ever read; from then on the targets tell.
    std::vector<int32_t> run{batch.inputs[begin]};
    bool learned = false;
    for (int64_t t = begin; t < end; ++t) {
      if (static_cast<bool>(batch.loss_mask[t]) != learned) {
        add(out, run, learned);
        run.clear();
        learned = !learned;
      }
      run.push_back(batch.targets[t]);
    }
    add(out, run, learned);
  }
  return out;
}

std::string show_tokens(const Batch& batch, int64_t row, const Tokenizer& tokenizer) {
  const int64_t first = row * batch.length;
  std::string out;
  for (int64_t t = 0; t <= batch.length; ++t) {
    // The first token is only read; what is learned are targets.
    const int32_t id = t == 0 ? batch.inputs[first] : batch.targets[first + t - 1];
    const bool learned = t > 0 && batch.loss_mask[first + t - 1];
    std::string text = printable(tokenizer.decode({&id, 1}));
    for (size_t at = 0; (at = text.find('\n', at)) != text.npos; at += 2) text.replace(at, 1, "\\n");
    out += fmt::format("{:6} {:7} {} \"{}\"\n", t, id, learned ? 1 : 0, text);
  }
  return out;
}

std::string show_pair(const PairBatch& batch, int64_t row, const Tokenizer& source, const Tokenizer& target,
                      bool colour) {
  const std::span sentence(batch.source + row * batch.source_length, batch.source_lengths[row]);
  const std::span learned(batch.targets + row * batch.target_length, batch.target_lengths[row]);
  return printable(source.decode(sentence)) + "\n" + (colour ? kLearned : "[") +
         printable(target.decode(learned)) + (colour ? kPlain : "]");
}

}  // namespace tightloop
