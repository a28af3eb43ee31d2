#include "data/read/csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "core/terminal/terminal.h"
#include "data/read/byte_stream.h"

namespace tightloop {

namespace {

using CsvRow = std::vector<std::string>;

/// The rows; quoted fields may have line ends and separators in them.
std::vector<CsvRow> rows_of(std::string_view text, char separator) {
  std::vector<CsvRow> rows(1, CsvRow(1));
  bool quoted = false;
  for (const char c : text) {
    CsvRow& row = rows.back();
    if (c == '"') {
      quoted = !quoted;
    } else if (quoted || (c != separator && c != '\n' && c != '\r')) {
      row.back() += c;
    } else if (c == separator) {
      row.emplace_back();
    } else if (c == '\n' && (row.size() > 1 || !row[0].empty())) {
      rows.emplace_back(1);
    }
  }
  if (rows.size() > 3) rows.pop_back();  // it may be cut
  rows.pop_back();
  return rows;
}

bool is_column_name(const std::string& name) {
  constexpr size_t kLongest = 40;
  const bool number = name.find_first_not_of("0123456789.+-eE") == name.npos;
  return !number && name.size() <= kLongest && name.find('\n') == name.npos;
}

/// Whether the first row has names, and nearly all others as many fields.
bool is_table(const std::vector<CsvRow>& rows) {
  if (rows.size() < 2 || rows[0].size() < 2 || !std::ranges::all_of(rows[0], is_column_name)) return false;
  const size_t size = rows[0].size();
  const auto alike =
      static_cast<size_t>(std::ranges::count_if(rows, [&](const CsvRow& row) { return row.size() == size; }));
  return alike * 10 >= rows.size() * 9;
}

}  // namespace

std::string csv_advice(const std::vector<fs::path>& paths) {
  for (const fs::path& path : paths) {
    fs::path unpacked = path;
    if (path.extension() == ".gz" || path.extension() == ".zst") unpacked.replace_extension();
    if (unpacked.extension() != ".csv" && unpacked.extension() != ".CSV") continue;
    const std::string head = head_of(path);
    for (const char separator : {',', ';', '\t'}) {
      const auto rows = rows_of(head + '\n', separator);
      if (!is_table(rows)) continue;
      fs::path jsonl = unpacked;
      jsonl.replace_extension(".jsonl");
      return fmt::format(
          "'{}' is a CSV table (columns {}), which is not read as it is. {} JSONL: python3 -c \"import "
          "csv,json,sys; [print(json.dumps(r, ensure_ascii=False)) for r in csv.DictReader(open(sys.argv[1], "
          "newline='', encoding='utf-8-sig'){})]\" {} > {}",
          path.string(), fmt::join(rows[0], ", "),
          path == unpacked ? "Turn it into" : "Unpack it, and turn it into",
          separator == ','   ? ""
          : separator == ';' ? ", delimiter=';'"
                             : ", delimiter='\\t'",
          shell_word(unpacked.string()), shell_word(jsonl.string()));
    }
  }
  return {};
}

void refuse_csv(const std::vector<fs::path>& paths) {
  if (const std::string advice = csv_advice(paths); !advice.empty())
    throw data_error("{}\nTo learn it as it is written, commas and all: --data.source text.", advice);
}

}  // namespace tightloop
