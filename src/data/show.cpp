#include "data/show.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tightloop {

namespace {

std::string printable(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string show_row(const Batch& batch, int64_t row, const Tokenizer& tokenizer, bool colour) {
  const char* const open = colour ? "\033[32m" : "[";
  const char* const close = colour ? "\033[0m" : "]";
  const int64_t first = row * batch.length;
  const auto add = [&](std::string& out, const std::vector<int32_t>& ids, bool learned) {
    if (ids.empty()) return;
    const std::string text = printable(tokenizer.decode(ids));
    out += learned ? open + text + close : text;
  };
  std::string out;
  const int32_t* bound = std::upper_bound(batch.bounds, batch.bounds + batch.documents + 1, first) - 1;
  for (; bound < batch.bounds + batch.documents && *bound < first + batch.length; ++bound) {
    const int64_t begin = bound[0], end = bound[1];
    // Padding is a document in which nothing is learned and every token is the same.
    const bool tail = end == first + batch.length && end - begin > 0;
    const bool padding =
        tail &&
        std::all_of(batch.inputs + begin, batch.inputs + end,
                    [&](int32_t id) { return id == batch.targets[begin]; }) &&
        std::all_of(batch.loss_mask + begin, batch.loss_mask + end, [](uint8_t m) { return m == 0; });
    if (padding) break;
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

}  // namespace tightloop
