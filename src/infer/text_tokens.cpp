#include "infer/text_tokens.h"

#include "core/error.h"
#include "core/interrupt.h"
#include "core/terminal/progress_line.h"
#include "data/read/byte_stream.h"
#include "data/read/encoding.h"
#include "data/read/text_reader.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop {

namespace {

/// All of a file, unpacked where it is compressed; of a pipe what comes.
std::string text_of(const fs::path& file) {
  if (!is_file(file) || !is_compressed(file)) return read_file(file);
  constexpr size_t kBlock = 1 << 20;
  std::string text;
  const auto stream = open_stream(file);
  for (size_t got = 1, size = 0; got > 0; size += got, text.resize(size)) {
    text.resize(size + kBlock);
    got = stream->read(text.data() + size, kBlock);
  }
  return text;
}

}  // namespace

TextTokens read_text_tokens(const fs::path& file, const DataConfig* data, const Tokenizer& tokenizer) {
  const std::string text = text_of(file);
  if (text.empty()) throw data_error("'{}' is empty.", file.string());
  if (!is_utf8(text) || text.find('\0') != text.npos) {
    const LikelyEncoding likely = likely_encoding(text);
    throw data_error("'{}' is not UTF-8 text: it looks like {}. {}", file.string(), likely.name,
                     conversion(likely, file));
  }
  const InterruptEndsProgram at_once;  // one call may be for all of the text
  const ProgressLine progress("Tokenizing " + file.string());
  TextTokens tokens{.bytes = static_cast<int64_t>(text.size())};
  if (!data || !is_file(file)) {  // a pipe cannot be read again
    tokenizer.encode(text, tokens.ids);
    return tokens;
  }
  TextReader reader({file}, {.documents = data->documents, .separator = data->separator});
  tokens.ids = {tokenizer.end_of_text()};
  constexpr size_t kRecords = 1024, kBytes = 1 << 22;
  for (RecordBatch batch; reader.read(batch, kRecords, kBytes); batch.clear())
    for (size_t i = 0; i < batch.size(); ++i) {
      tokenizer.encode(batch[i].bytes, tokens.ids);
      if (!batch[i].last) continue;
      tokens.ids.push_back(tokenizer.end_of_text());
      ++tokens.documents;
    }
  if (tokens.documents == 0) throw data_error("'{}' holds nothing but white space.", file.string());
  return tokens;
}

}  // namespace tightloop
