// libtightloop_parquet.so: Parquet files through Arrow. Loaded by data/read/parquet.cpp.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "core/error.h"
#include "core/files.h"
#include "data/read/json_text.h"
#include "data/read/parquet.h"

namespace tightloop {

namespace {

constexpr int64_t kRows = 1024;    // decoded at once
constexpr uint64_t kUnpacked = 3;  // times what it takes on disk, about

// Arrow does not verify all that it decodes: offsets of a damaged file may point anywhere.
void demand(bool inside) {
  if (!inside) throw std::runtime_error("offsets point outside of the data");
}

template <class Strings>
std::string_view text_at(const Strings& strings, int64_t i) {
  const int64_t begin = strings.value_offset(i), end = strings.value_offset(i + 1);
  const auto& data = strings.value_data();
  demand(0 <= begin && begin <= end && end <= (data ? data->size() : 0));
  return strings.GetView(i);
}

void append_value(const arrow::Array& array, int64_t i, std::string& out);

template <class List>
void append_list(const List& list, int64_t i, std::string& out) {
  out += '[';
  for (int64_t k = 0; k < list.value_length(i); ++k) {
    if (k > 0) out += ',';
    append_value(*list.values(), list.value_offset(i) + k, out);
  }
  out += ']';
}

void append_struct(const arrow::StructArray& array, int64_t i, std::string& out) {
  out += '{';
  for (int f = 0; f < array.num_fields(); ++f) {
    if (f > 0) out += ',';
    append_json_string(array.struct_type()->field(f)->name(), out);
    out += ':';
    append_value(*array.field(f), i, out);
  }
  out += '}';
}

void append_value(const arrow::Array& array, int64_t i, std::string& out) {
  using arrow::Type;
  using arrow::internal::checked_cast;
  demand(0 <= i && i < array.length());
  if (array.IsNull(i)) return void(out += "null");
  switch (array.type_id()) {
    case Type::STRING:
    case Type::BINARY:
      return append_json_string(text_at(checked_cast<const arrow::BinaryArray&>(array), i), out);
    case Type::LARGE_STRING:
    case Type::LARGE_BINARY:
      return append_json_string(text_at(checked_cast<const arrow::LargeBinaryArray&>(array), i), out);
    case Type::LIST:
      return append_list(checked_cast<const arrow::ListArray&>(array), i, out);
    case Type::LARGE_LIST:
      return append_list(checked_cast<const arrow::LargeListArray&>(array), i, out);
    case Type::STRUCT:
      return append_struct(checked_cast<const arrow::StructArray&>(array), i, out);
    case Type::DICTIONARY: {
      const auto& encoded = checked_cast<const arrow::DictionaryArray&>(array);
      return append_value(*encoded.dictionary(), encoded.GetValueIndex(i), out);
    }
    case Type::BOOL:
      return void(out += checked_cast<const arrow::BooleanArray&>(array).Value(i) ? "true" : "false");
    default:
      break;
  }
  // Numbers write themselves; dates and the like become strings.
  const auto scalar = array.GetScalar(i);
  const std::string text = scalar.ok() ? (*scalar)->ToString() : "";
  const bool number =
      arrow::is_integer(array.type_id()) ||
      (arrow::is_floating(array.type_id()) && text.find_first_not_of("0123456789+-.e") == text.npos);
  if (number) {
    out += text;
  } else {
    append_json_string(text, out);
  }
}

class ParquetRecords : public RecordReader {
 public:
  ParquetRecords(const std::vector<fs::path>& paths, std::vector<std::string> columns, uint64_t max_bytes)
      : paths_(paths), columns_(std::move(columns)), max_bytes_(max_bytes) {
    for (const fs::path& path : paths_) {
      if (!is_file(path)) throw data_error("cannot read '{}': it is not a file.", path.string());
      names_.push_back(path.string());
    }
  }

  const std::vector<std::string>& files() const override { return names_; }

  bool read(RecordBatch& batch, size_t records, size_t bytes) override {
    const size_t before = batch.size();
    while (batch.size() < records && batch.bytes() < bytes) {
      try {
        if (!advance()) break;
        add_row(batch);
      } catch (const std::exception& error) {  // parquet throws for damage that it meets late
        fail(batch, error.what());
      }
    }
    return batch.size() > before;
  }

 private:
  struct Broken : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  static void check(const arrow::Status& status) {
    if (!status.ok()) throw Broken(status.ToString());
  }
  template <class T>
  static T value_of(arrow::Result<T> result) {
    check(result.status());
    return result.MoveValueUnsafe();
  }

  // Makes rows_ and row_ stand at the next row. False after the last file.
  bool advance() {
    for (;;) {
      if (rows_ && row_ < rows_->num_rows()) return true;
      rows_.reset();
      row_ = 0;
      if (group_rows_) {
        check(group_rows_->ReadNext(&rows_));
        if (rows_) continue;
        group_rows_.reset();
        ++group_;
        bytes_read_ += group_bytes_;
      }
      if (reader_ && group_ < reader_->num_row_groups()) {
        group_rows_ = value_of(reader_->GetRecordBatchReader({group_}, selected_));
        continue;
      }
      reader_.reset();
      if (file_ == paths_.size()) return false;
      open_file(paths_[file_++]);
    }
  }

  void open_file(const fs::path& path) {
    group_ = 0;
    number_ = 0;
    selected_.clear();
    auto file = value_of(arrow::io::ReadableFile::Open(path.string()));
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(file));
    parquet::ArrowReaderProperties properties;
    properties.set_batch_size(kRows);
    properties.set_use_threads(false);
    builder.properties(properties);
    std::unique_ptr<parquet::arrow::FileReader> reader;
    check(builder.Build(&reader));
    // Columns are leaves; a nested field has several.
    const auto* schema = reader->parquet_reader()->metadata()->schema();
    std::vector<std::string> there;
    for (int leaf = 0; leaf < schema->num_columns(); ++leaf) {
      const std::string root = schema->GetColumnRoot(leaf)->name();
      if (there.empty() || there.back() != root) there.push_back(root);
      if (std::find(columns_.begin(), columns_.end(), root) != columns_.end()) selected_.push_back(leaf);
    }
    if (selected_.empty() && schema->num_columns() > 0) {
      throw Broken(fmt::format("its columns are {}; none of the columns {} is in it", fmt::join(there, ", "),
                               fmt::join(columns_, ", ")));
    }
    reader_ = std::move(reader);
    group_bytes_ = file_bytes(path) / std::max(1, reader_->num_row_groups());
  }

  void add_row(RecordBatch& batch) {
    json_.assign(1, '{');
    for (int c = 0; c < rows_->num_columns(); ++c) {
      if (c > 0) json_ += ',';
      append_json_string(rows_->schema()->field(c)->name(), json_);
      json_ += ':';
      append_value(*rows_->column(c), row_, json_);
    }
    json_ += '}';
    ++row_;
    Record record;
    record.file = static_cast<uint32_t>(file_ - 1);
    record.line = ++number_;
    record.bytes = json_;
    if (json_.size() > max_bytes_) {
      record.bad = BadKind::kTooLong;
      record.lost = json_.size();
      record.bytes = "longer than data.max_record_bytes";
    }
    batch.add(record);
  }

  // Gives up the row group at hand, or the file if it has none yet, and goes on behind it.
  void fail(RecordBatch& batch, const std::string& why) {
    Record record;
    record.file = static_cast<uint32_t>(file_ - 1);
    record.line = number_ + 1;
    record.bad = BadKind::kBrokenFile;
    record.bytes = why;
    const fs::path& path = paths_[file_ - 1];
    record.lost = kUnpacked * (reader_ ? group_bytes_ : is_file(path) ? file_bytes(path) : 0);
    batch.add(record);
    rows_.reset();
    group_rows_.reset();
    ++group_;
  }

  std::vector<fs::path> paths_;
  std::vector<std::string> names_, columns_;
  uint64_t max_bytes_;
  size_t file_ = 0;  // of the next one to open
  int group_ = 0;
  std::vector<int> selected_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<arrow::RecordBatchReader> group_rows_;
  std::shared_ptr<arrow::RecordBatch> rows_;
  int64_t row_ = 0;
  uint64_t group_bytes_ = 0;  // of the file, on average
  uint64_t number_ = 0;
  std::string json_;
};

}  // namespace

}  // namespace tightloop

extern "C" tightloop::RecordReader* tightloop_open_parquet(const std::vector<tightloop::fs::path>& paths,
                                                           const std::vector<std::string>& columns,
                                                           uint64_t max_bytes) {
  return new tightloop::ParquetRecords(paths, columns, max_bytes);
}
