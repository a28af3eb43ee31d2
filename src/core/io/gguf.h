#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/choice.h"
#include "core/files.h"

namespace tightloop {

/// Types of metadata in a GGUF file, by the format's numbers.
enum class GgufKind : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};
template <>
inline constexpr auto kChoices<GgufKind> = std::to_array<Choice<GgufKind>>({
    {GgufKind::kUint8, "u8"},
    {GgufKind::kInt8, "i8"},
    {GgufKind::kUint16, "u16"},
    {GgufKind::kInt16, "i16"},
    {GgufKind::kUint32, "u32"},
    {GgufKind::kInt32, "i32"},
    {GgufKind::kFloat32, "f32"},
    {GgufKind::kBool, "bool"},
    {GgufKind::kString, "string"},
    {GgufKind::kUint64, "u64"},
    {GgufKind::kInt64, "i64"},
    {GgufKind::kFloat64, "f64"},
});

/// Bytes of one; 0 of texts and lists.
size_t size_of(GgufKind kind);

/// A value of metadata: a number, a truth value, a text, or a list of one of these.
struct GgufValue {
  GgufKind kind = GgufKind::kUint32;  // of a list: of its elements
  bool list = false;
  std::string bytes{};  // numbers as the file has them, one after the other
  std::vector<std::string> texts{};

  static GgufValue of(uint32_t number) { return {.kind = GgufKind::kUint32, .bytes = raw(number)}; }
  static GgufValue of(float number) { return {.kind = GgufKind::kFloat32, .bytes = raw(number)}; }
  static GgufValue of(double number) { return {.kind = GgufKind::kFloat64, .bytes = raw(number)}; }
  static GgufValue of(bool flag) { return {.kind = GgufKind::kBool, .bytes = std::string(1, flag ? 1 : 0)}; }
  static GgufValue of(std::string text) { return {.kind = GgufKind::kString, .texts = {std::move(text)}}; }
  static GgufValue of(const char* text) { return of(std::string(text)); }
  static GgufValue of(std::vector<std::string> texts) {
    return {.kind = GgufKind::kString, .list = true, .texts = std::move(texts)};
  }
  static GgufValue of(const std::vector<int32_t>& numbers);
  static GgufValue of(const std::vector<float>& numbers);

  uint64_t count() const;  // of a list
  // What it is, where it is that; of a list, element `i`.
  std::optional<int64_t> integer(uint64_t i = 0) const;
  std::optional<double> number(uint64_t i = 0) const;  // an f32 is the shortest decimal that stands for it
  std::optional<bool> flag() const;
  const std::string* text() const { return kind == GgufKind::kString && !list ? &texts[0] : nullptr; }

  bool operator==(const GgufValue&) const = default;

 private:
  template <class Number>
  static std::string raw(Number number) {
    return {reinterpret_cast<const char*>(&number), sizeof number};
  }
};

/// Keys and values, in the order of the file.
class GgufMetadata {
 public:
  using Entry = std::pair<std::string, GgufValue>;
  const std::vector<Entry>& entries() const { return entries_; }
  /// Null where there is none.
  const GgufValue* find(const std::string& key) const;
  /// Behind all others. False where the key is there already.
  bool add(std::string key, GgufValue value);

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> places_;
};

/// Types of tensors, by ggml's numbers. Weights are read of those that ggml_type_of() in model/files has;
/// the rest is known by its size.
struct GgmlType {
  uint32_t number;
  std::string_view name;
  uint32_t values, bytes;  // of a block

  static const GgmlType* of(uint32_t number);  // null: not known
};

/// A tensor of a file. Sizes are in ggml's order: neighbours in memory first.
struct GgufTensor {
  std::string name;
  const GgmlType* type = nullptr;
  std::vector<int64_t> sizes{};
  uint64_t begin = 0;  // in the file

  int64_t values() const;
  uint64_t bytes() const;
};

/// A GGUF file (version 2 or 3), memory-mapped. Opening it checks all counts, lengths, types, sizes and
/// offsets; what is wrong is a checkpoint error that names file and place.
class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return map_->path(); }
  uint32_t version() const { return version_; }
  const GgufMetadata& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(const std::string& name) const;
  const char* data(const GgufTensor& tensor) const { return map_->text().data() + tensor.begin; }
  /// Keeps the file mapped.
  const std::shared_ptr<const MappedFile>& map() const { return map_; }

 private:
  std::shared_ptr<const MappedFile> map_;
  uint32_t version_ = 0;
  GgufMetadata metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string, size_t> places_;
};

/// Whether a name is that of a GGUF file, by its ending.
bool is_gguf_name(const std::filesystem::path& path);

/// Takes the next bytes of a tensor.
using PutBytes = std::function<void(const void* bytes, size_t size)>;
/// Writes version 3, aligned to 32, whole or not at all. `begin` of the tensors is not read: data(i, put)
/// gives each one's bytes when they are due.
void write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
                const std::vector<GgufTensor>& tensors,
                const std::function<void(size_t tensor, const PutBytes& put)>& data);

}  // namespace tightloop
