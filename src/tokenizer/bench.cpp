#include "tokenizer/bench.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "core/error.h"
#include "core/threads.h"

namespace tightloop {

namespace {

constexpr size_t kDocumentChars = 4096;

std::vector<std::string_view> cut(std::string_view text) {
  std::vector<std::string_view> documents;
  size_t begin = 0, chars = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<uint8_t>(text[i]) & 0xC0) == 0x80) continue;
    if (chars++ < kDocumentChars) continue;
    documents.push_back(text.substr(begin, i - begin));
    begin = i;
    chars = 1;
  }
  documents.push_back(text.substr(begin));
  return documents;
}

}  // namespace

TokenizerSpeed measure_tokenizer(const Tokenizer& tokenizer, std::string_view text, int threads,
                                 double megabytes, bool whole, int rounds) {
  if (text.empty()) throw data_error("there is no text to measure the tokenizer with: the input is empty.");
  if (threads <= 0) threads = available_cores();
  std::vector<std::string_view> documents = whole ? std::vector{text} : cut(text);
  const size_t once = documents.size();
  const auto repeats =
      std::max<size_t>(1, static_cast<size_t>(megabytes * 1e6 / static_cast<double>(text.size())));
  for (size_t i = once; i < once * repeats; ++i) documents.push_back(documents[i - once]);

  TokenizerSpeed speed;
  speed.documents = documents.size();
  speed.bytes = text.size() * repeats;
  speed.seconds = std::numeric_limits<double>::infinity();
  std::vector<std::vector<int32_t>> ids;
  for (int round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    encode_batch(tokenizer, documents, ids, threads);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    speed.seconds = std::min(speed.seconds, took.count());
  }
  for (const auto& document : ids) speed.tokens += document.size();
  speed.mb_s = static_cast<double>(speed.bytes) / speed.seconds / 1e6;
  speed.tokens_s = static_cast<double>(speed.tokens) / speed.seconds;
  return speed;
}

}  // namespace tightloop
