#include "model/safetensors.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"

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

Entry parse_entry(const std::string& name, const nlohmann::json& value, const std::string& file) {
  const std::string where = fmt::format("'{}': tensor '{}'", file, name);
  Entry entry{name, dtype_called(value.at("dtype").get<std::string>(), where),
              value.at("shape").get<std::vector<int64_t>>(), 0, 0};
  const auto offsets = value.at("data_offsets").get<std::vector<uint64_t>>();
  if (offsets.size() != 2 || offsets[0] > offsets[1]) throw checkpoint_error("{} has bad offsets.", where);
  entry.begin = offsets[0], entry.end = offsets[1];
  uint64_t bytes = at::elementSize(entry.type);
  for (const int64_t size : entry.shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) {
      throw checkpoint_error("{} has an impossible shape.", where);
    }
  }
  if (bytes != entry.end - entry.begin) throw checkpoint_error("{}: its shape and its size disagree.", where);
  return entry;
}

}  // namespace

uint64_t write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                           const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", dtype_name(tensor.scalar_type())},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {offset, offset + tensor.nbytes()}}};
    offset += tensor.nbytes();
  }
  std::string text = header.is_null() ? "{}" : header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data stays aligned

  Hasher hasher;
  FileWriter writer(path);
  const auto put = [&](const void* data, size_t size) {
    hasher.update(data, size);
    writer.write(data, size);
  };
  const uint64_t length = text.size();
  put(&length, sizeof length);
  put(text.data(), text.size());
  for (const auto& [name, tensor] : tensors) {
    const auto dense = tensor.detach().to(at::kCPU).contiguous();
    put(dense.const_data_ptr(), dense.nbytes());
  }
  writer.close();
  return hasher.digest();
}

Safetensors read_safetensors(const std::filesystem::path& path) {
  const std::string file = path.string();
  if (!std::filesystem::exists(path)) throw checkpoint_error("there is no file '{}'.", file);
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
    const auto header = nlohmann::json::parse(bytes.substr(sizeof header_size, header_size));
    if (!header.is_object()) throw checkpoint_error("'{}' has a header that is not a JSON object.", file);
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
  for (const auto& entry : entries) {
    void* begin =
        const_cast<char*>(data.data() + entry.begin);  // read-only pages: torch must not write to it
    result.tensors[entry.name] = at::from_blob(
        begin, entry.shape, [map](void*) {}, entry.type);
  }
  return result;
}

}  // namespace tightloop
