#include "data/read/json_files.h"

#include <simdjson.h>

#include <algorithm>

#include "data/read/byte_stream.h"
#include "data/read/json_array_reader.h"
#include "data/read/line_reader.h"

namespace tightloop {

namespace {

enum class JsonShape { kLines, kList, kObjects };

/// Where the object ends that the text begins with; npos where that cannot be seen.
size_t end_of_object(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      at += c == '\\';
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return at + 1;
    }
  }
  return text.npos;
}

/// Whether the first object goes on behind its line, as pretty-printed ones do; a line that is cut off does
/// not.
bool spans_lines(std::string_view head) {
  const std::string_view text = head.substr(std::min(head.size(), head.find_first_not_of(" \t\r\n")));
  const std::string_view line = text.substr(0, text.find('\n'));
  const size_t end = end_of_object(text);
  if (end == text.npos) return line.find_first_not_of(" \t\r", 1) == line.npos;  // it is long
  simdjson::dom::parser parser;
  return end > line.size() && parser.parse(text.data(), end).error() == simdjson::SUCCESS;
}

// `[[` and `[{` open a list of records; `["` is a line with a pair.
JsonShape shape_of(const fs::path& path) {
  const std::string head = head_of(path), start = first_marks(head);
  if (start == "[[" || start == "[{" || start == "[") return JsonShape::kList;
  return start == "{\"" && spans_lines(head) ? JsonShape::kObjects : JsonShape::kLines;
}

class JsonFiles : public RecordReader {
 public:
  JsonFiles(const std::vector<fs::path>& paths, uint64_t max_bytes) {
    std::vector<JsonShape> shapes;
    for (const fs::path& path : paths) shapes.push_back(shape_of(path));
    for (size_t at = 0, next = 0; at < paths.size(); at = next) {
      const JsonShape shape = shapes[at];
      while (next < paths.size() && shapes[next] == shape) ++next;
      const std::vector<fs::path> alike(paths.begin() + at, paths.begin() + next);
      firsts_.push_back(static_cast<uint32_t>(at));
      if (shape == JsonShape::kLines)
        readers_.push_back(std::make_unique<LineRecords>(alike, max_bytes));
      else
        readers_.push_back(
            std::make_unique<JsonArrayRecords>(alike, max_bytes, shape == JsonShape::kObjects));
    }
    for (const fs::path& path : paths) names_.push_back(path.string());
  }
  bool read(RecordBatch& batch, size_t records, size_t bytes) override {
    const size_t before = batch.size();
    for (; at_ < readers_.size() && batch.size() < records && batch.bytes() < bytes;) {
      const size_t from = batch.size();
      if (!readers_[at_]->read(batch, records, bytes)) {
        ++at_;
        continue;
      }
      batch.move_files(from, firsts_[at_]);
    }
    return batch.size() > before;
  }
  const std::vector<std::string>& files() const override { return names_; }
  uint64_t bytes_read() const override {
    uint64_t bytes = 0;
    for (const auto& reader : readers_) bytes += reader->bytes_read();
    return bytes;
  }

 private:
  std::vector<std::unique_ptr<RecordReader>> readers_;  // each of files of one shape that follow each other
  std::vector<uint32_t> firsts_;                        // of each, the number of its first file
  std::vector<std::string> names_;
  size_t at_ = 0;
};

}  // namespace

std::string first_marks(std::string_view head) {
  std::string marks;
  for (size_t at = 0; marks.size() < 2 && (at = head.find_first_not_of(" \t\r\n", at)) != head.npos; ++at)
    marks += head[at];
  return marks;
}

std::unique_ptr<RecordReader> read_json_files(const std::vector<fs::path>& paths, uint64_t max_bytes) {
  return std::make_unique<JsonFiles>(paths, max_bytes);
}

bool opens_records(std::string_view marks) { return marks == "{\"" || marks == "[{"; }

bool holds_json_records(const fs::path& path) { return opens_records(first_marks(head_of(path))); }

}  // namespace tightloop
