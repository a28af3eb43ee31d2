#include "model/files/safetensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/io/json_depth.h"

namespace tightloop {

namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr uint64_t kLargestHeader = 100'000'000;  // as other readers have it

struct Dtype {
  const char* name;
  at::ScalarType type;
};
constexpr Dtype kDtypes[] = {
    {"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf},  {"BF16", at::kBFloat16},
    {"I64", at::kLong},   {"I32", at::kInt},   {"I16", at::kShort}, {"I8", at::kChar},
    {"U8", at::kByte},    {"BOOL", at::kBool},
};

const char* dtype_name(at::ScalarType type) {
  for (const auto& dtype : kDtypes)
    if (dtype.type == type) return dtype.name;
  throw std::logic_error("this dtype has no name in safetensors");
}

at::ScalarType dtype_called(const std::string& name, const std::string& where) {
  for (const auto& dtype : kDtypes)
    if (name == dtype.name) return dtype.type;
  throw checkpoint_error("{} has dtype '{}', which is not supported.", where, name);
}

struct Entry {
  std::string name;
  at::ScalarType type;
  std::vector<int64_t> shape;
  uint64_t begin, end;
};

// Whole numbers that fit int64: fractions and negatives must not be rounded into something that fits.
std::vector<int64_t> numbers_of(const nlohmann::json& list, const std::string& where, const char* what) {
  std::vector<int64_t> numbers;
  bool good = list.is_array();
  for (size_t i = 0; good && i < list.size(); ++i) {
    good = list[i].is_number_unsigned() && list[i].get<uint64_t>() <= uint64_t{INT64_MAX};
    if (good) numbers.push_back(list[i].get<int64_t>());
  }
  if (!good) throw checkpoint_error("{} has an impossible {}.", where, what);
  return numbers;
}

Entry parse_entry(const std::string& name, const nlohmann::json& value, const std::string& file) {
  const std::string where = fmt::format("'{}': tensor '{}'", file, name);
  Entry entry{name, dtype_called(value.at("dtype").get<std::string>(), where),
              numbers_of(value.at("shape"), where, "shape"), 0, 0};
  const auto offsets = numbers_of(value.at("data_offsets"), where, "offset");
  if (offsets.size() != 2 || offsets[0] > offsets[1]) throw checkpoint_error("{} has bad offsets.", where);
  entry.begin = static_cast<uint64_t>(offsets[0]), entry.end = static_cast<uint64_t>(offsets[1]);
  // Strides are products too, where another size is 0.
  int64_t bytes = static_cast<int64_t>(at::elementSize(entry.type)), strides = bytes;
  for (const int64_t size : entry.shape) {
    if (__builtin_mul_overflow(strides, std::max<int64_t>(1, size), &strides))
      throw checkpoint_error("{} has an impossible shape.", where);
    bytes *= size;
  }
  if (bytes != offsets[1] - offsets[0]) throw checkpoint_error("{}: its shape and its size disagree.", where);
  return entry;
}

// JSON lets a key stand twice, and parsers then keep one of the two.
nlohmann::json parse_header(std::string_view text, const std::string& file) {
  std::set<std::string> names;
  const auto header = nlohmann::json::parse(text, [&](int depth, auto event, const nlohmann::json& key) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1 &&
        !names.insert(key.get<std::string>()).second)
      throw checkpoint_error("'{}' has the tensor '{}' twice.", file, key.get<std::string>());
    return true;
  });
  if (!header.is_object()) throw checkpoint_error("'{}' has a header that is not a JSON object.", file);
  return header;
}

at::Tensor tensor_at(const Entry& entry, const char* data, const std::shared_ptr<MappedFile>& map) {
  // Read-only pages: torch must not write to them.
  void* begin = const_cast<char*>(data + entry.begin);
  const bool aligned = reinterpret_cast<uintptr_t>(begin) % at::elementSize(entry.type) == 0;
  if (aligned && entry.type != at::kBool) {
    return at::from_blob(
        begin, entry.shape, [map](void*) {}, entry.type);
  }
  auto copy = at::empty(entry.shape, entry.type);
  if (copy.numel() > 0) std::memcpy(copy.mutable_data_ptr(), begin, copy.nbytes());
  return entry.type == at::kBool ? copy.view(at::kByte).ne(0) : copy;  // a bool is 0 or 1
}

}  // namespace

SafetensorsLayout::SafetensorsLayout(const std::vector<Tensor>& tensors,
                                     const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const auto& [name, dtype, sizes] : tensors) {
    uint64_t size = c10::elementSize(dtype);
    for (const int64_t one : sizes) size *= static_cast<uint64_t>(one);
    header[name] = {
        {"dtype", dtype_name(dtype)}, {"shape", sizes}, {"data_offsets", {offset, offset + size}}};
    begin[name] = offset;
    offset += size;
  }
  std::string text = header.is_null() ? "{}" : header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data stays aligned
  const uint64_t length = text.size();
  head = std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
  for (auto& [name, at] : begin) at += head.size();
  bytes = head.size() + offset;
}

uint64_t write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                           const std::map<std::string, std::string>& metadata,
                           const std::function<void(uint64_t)>& wrote) {
  constexpr size_t kPiece = 16 << 20;
  std::vector<SafetensorsLayout::Tensor> shapes;
  for (const auto& [name, tensor] : tensors)
    shapes.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  const SafetensorsLayout layout(shapes, metadata);
  Hasher hasher;
  FileWriter writer(path);
  const auto put = [&](const void* data, size_t size) {
    for (size_t at = 0; at < size; at += kPiece) {
      const char* piece = static_cast<const char*>(data) + at;
      const size_t bytes = std::min(kPiece, size - at);
      hasher.update(piece, bytes);
      writer.write(piece, bytes);
      if (wrote) wrote(bytes);
    }
  };
  put(layout.head.data(), layout.head.size());
  for (const auto& [name, tensor] : tensors) {
    const auto dense = tensor.detach().to(at::kCPU).contiguous();
    put(dense.const_data_ptr(), dense.nbytes());
  }
  writer.close();
  return hasher.digest();
}

uint64_t bytes_of(const NamedTensors& tensors) {
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.nbytes();
  return bytes;
}

Safetensors read_safetensors(const std::filesystem::path& path) {
  const std::string file = path.string();
  if (!path_exists(path)) throw checkpoint_error("there is no file '{}'.", file);
  const auto map = std::make_shared<MappedFile>(path);
  const std::string_view bytes = map->text();
  uint64_t header_size = 0;
  if (bytes.size() < sizeof header_size)
    throw checkpoint_error("'{}' is truncated: {} bytes.", file, bytes.size());
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  if (header_size > kLargestHeader || header_size > bytes.size() - sizeof header_size) {
    throw checkpoint_error("'{}' is truncated or not a safetensors file: its header claims {} bytes.", file,
                           header_size);
  }
  const std::string_view data = bytes.substr(sizeof header_size + header_size);

  Safetensors result;
  std::vector<Entry> entries;
  try {
    const auto header = parse_header(bytes.substr(sizeof header_size, header_size), file);
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        result.metadata = value.get<std::map<std::string, std::string>>();
      } else {
        entries.push_back(parse_entry(name, value, file));
      }
    }
  } catch (const nlohmann::json::exception& error) {
    throw checkpoint_error("'{}' has a damaged header: {}.", file, error.what());
  }
  std::ranges::sort(entries, {}, [](const Entry& entry) { return std::pair(entry.begin, entry.end); });
  uint64_t expected = 0;
  for (const auto& entry : entries) {
    if (entry.begin != expected)
      throw checkpoint_error("'{}': overlap or hole before '{}'.", file, entry.name);
    expected = entry.end;
  }
  if (expected != data.size()) {
    throw checkpoint_error("'{}' is truncated or has extra bytes: {} of data, {} described.", file,
                           data.size(), expected);
  }
  for (const auto& entry : entries) result.tensors[entry.name] = tensor_at(entry, data.data(), map);
  return result;
}

namespace {

void add_file(TensorFiles& files, const std::filesystem::path& path) {
  for (auto& [name, tensor] : read_safetensors(path).tensors) {
    if (!files.tensors.emplace(name, tensor).second)
      throw checkpoint_error("'{}' and '{}' both have the tensor '{}'.", files.file_of.at(name).string(),
                             path.string(), name);
    files.file_of[name] = path;
  }
}

}  // namespace

TensorFiles read_tensor_files(const std::filesystem::path& folder) {
  TensorFiles files;
  const auto index = folder / "model.safetensors.index.json";
  if (!path_exists(index)) {
    if (!path_exists(folder / "model.safetensors"))
      throw checkpoint_error("'{}' has neither model.safetensors nor model.safetensors.index.json.",
                             folder.string());
    add_file(files, folder / "model.safetensors");
    return files;
  }
  std::map<std::string, std::string> file_of;
  try {
    file_of = nlohmann::json::parse(shallow_json(read_file(index))).at("weight_map").get<decltype(file_of)>();
  } catch (const nlohmann::json::exception& error) {
    throw checkpoint_error("'{}' is damaged: {}.", index.string(), error.what());
  }
  std::set<std::string> names;
  for (const auto& [tensor, name] : file_of) names.insert(name);
  for (const auto& name : names) {
    if (std::filesystem::path(name).filename() != name)
      throw checkpoint_error("'{}' names a file outside of its folder: '{}'.", index.string(), name);
    add_file(files, folder / name);
  }
  for (const auto& [tensor, name] : file_of) {
    const auto found = files.file_of.find(tensor);
    if (found == files.file_of.end() || found->second.filename() != name)
      throw checkpoint_error("'{}' has no tensor '{}', which the index puts there.", (folder / name).string(),
                             tensor);
  }
  for (const auto& [tensor, file] : files.file_of)
    if (!file_of.contains(tensor))
      throw checkpoint_error("'{}' has a tensor '{}' that the index does not list.", file.string(), tensor);
  return files;
}

}  // namespace tightloop
