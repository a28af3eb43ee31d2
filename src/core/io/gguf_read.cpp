#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/io/gguf.h"

namespace tightloop {

namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kUsualAlignment = 32;
constexpr uint32_t kMostDimensions = 4;  // of ggml

/// The head of a file, from front to back. Errors say at which byte, and of what.
class GgufHead {
 public:
  GgufHead(std::string_view bytes, std::string file) : bytes_(bytes), file_(std::move(file)) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  template <class... Args>
  Error wrong(fmt::format_string<Args...> format, Args&&... args) const {
    return checkpoint_error("'{}', at byte {}: {}.", file_, at_,
                            fmt::format(format, std::forward<Args>(args)...));
  }

  std::string_view take(uint64_t size, std::string_view what) {
    if (size > left())
      throw wrong("{} takes {} bytes, and {} are left: the file is truncated or damaged", what, size, left());
    const auto taken = bytes_.substr(at_, size);
    at_ += size;
    return taken;
  }
  template <class Number>
  Number number(std::string_view what) {
    Number value;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }
  /// Of things that take `least` bytes each: no more than can be there.
  uint64_t count(uint64_t least, std::string_view what) {
    const auto count = number<uint64_t>(what);
    if (count > left() / least)
      throw wrong("{} is {}, more than fit into the {} bytes that are left: the file is truncated or damaged",
                  what, count, left());
    return count;
  }
  std::string text(std::string_view what) {
    const uint64_t size = count(1, what);
    return std::string(take(size, what));
  }
  GgufKind kind(std::string_view what) {
    const auto number = this->number<uint32_t>(what);
    if (number > static_cast<uint32_t>(GgufKind::kFloat64))
      throw wrong("{} is {}; types of metadata go from 0 to 12", what, number);
    return static_cast<GgufKind>(number);
  }

  GgufValue value(const std::string& key) {
    const std::string what = fmt::format("the value of '{}'", key);
    GgufValue value{.kind = kind("the type of '" + key + "'")};
    uint64_t count = 1;
    if (value.kind == GgufKind::kArray) {
      value.list = true;
      value.kind = kind("the type of the list '" + key + "'");
      if (value.kind == GgufKind::kArray) throw wrong("'{}' is a list of lists, which is not supported", key);
      count = this->count(value.kind == GgufKind::kString ? sizeof(uint64_t) : size_of(value.kind),
                          "the length of the list '" + key + "'");
    }
    if (value.kind != GgufKind::kString) {
      value.bytes = take(count * size_of(value.kind), what);
      return value;
    }
    value.texts.reserve(std::min<uint64_t>(count, 1 << 20));  // a count may lie
    for (uint64_t i = 0; i < count; ++i) value.texts.push_back(text(what));
    return value;
  }

  /// Its `begin` counts from where the data begins.
  GgufTensor tensor() {
    GgufTensor tensor{.name = text("the name of a tensor")};
    const std::string what = fmt::format("tensor '{}'", tensor.name);
    const auto dimensions = number<uint32_t>("the dimensions of " + what);
    if (dimensions < 1 || dimensions > kMostDimensions)
      throw wrong("{} has {} dimensions; 1 to {} were expected", what, dimensions, kMostDimensions);
    int64_t values = 1;
    for (uint32_t i = 0; i < dimensions; ++i) {
      const auto size = number<int64_t>("the shape of " + what);
      if (size < 1 || __builtin_mul_overflow(values, size, &values) || values > (int64_t{1} << 56))
        throw wrong("{} has an impossible shape (size {} in dimension {})", what, size, i);
      tensor.sizes.push_back(size);
    }
    const auto type = number<uint32_t>("the type of " + what);
    tensor.type = GgmlType::of(type);
    if (!tensor.type) throw wrong("{} is of ggml's type {}, which is not known here", what, type);
    if (tensor.sizes[0] % tensor.type->values)
      throw wrong("{} has rows of {} values, and {} has blocks of {}", what, tensor.sizes[0],
                  tensor.type->name, tensor.type->values);
    tensor.begin = number<uint64_t>("the offset of " + what);
    return tensor;
  }

 private:
  std::string_view bytes_;
  std::string file_;
  uint64_t at_ = 0;
};

uint32_t read_version(GgufHead& head) {
  if (head.left() < kMagic.size() || head.take(kMagic.size(), "") != kMagic)
    throw head.wrong("this is not a GGUF file: it does not begin with the letters GGUF");
  const auto version = head.number<uint32_t>("the version");
  if (version != 0 && (version & 0xffff) == 0)
    throw head.wrong("the file is big-endian, which is not supported");
  if (version != 2 && version != 3)
    throw head.wrong("the file has version {} of the format; 2 and 3 are supported", version);
  return version;
}

uint64_t read_alignment(const GgufMetadata& metadata, const GgufHead& head) {
  const GgufValue* value = metadata.find("general.alignment");
  if (!value) return kUsualAlignment;
  const auto alignment = value->list ? std::nullopt : value->integer();
  if (!alignment || *alignment < 8 || *alignment > (1 << 20) ||
      !std::has_single_bit(static_cast<uint64_t>(*alignment)))
    throw head.wrong("general.alignment is no power of 2 from 8 to 1048576");
  return static_cast<uint64_t>(*alignment);
}

uint64_t padded(uint64_t bytes, uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

GgufFile::GgufFile(const fs::path& path) {
  const std::string file = path.string();
  if (!path_exists(path)) throw checkpoint_error("there is no file '{}'.", file);
  map_ = std::make_shared<const MappedFile>(path);
  GgufHead head(map_->text(), file);
  version_ = read_version(head);
  constexpr uint64_t kLeastTensor = 8 + 4 + 8 + 4 + 8, kLeastEntry = 8 + 4 + 1;
  const uint64_t tensors = head.count(kLeastTensor, "the number of tensors");
  const uint64_t entries = head.count(kLeastEntry, "the number of metadata entries");
  for (uint64_t i = 0; i < entries; ++i) {
    const std::string key = head.text("the name of a metadata entry");
    if (!metadata_.add(key, head.value(key))) throw head.wrong("the metadata has '{}' twice", key);
  }
  for (uint64_t i = 0; i < tensors; ++i) {
    tensors_.push_back(head.tensor());
    if (!places_.emplace(tensors_.back().name, i).second)
      throw head.wrong("the file has the tensor '{}' twice", tensors_.back().name);
  }
  const uint64_t alignment = read_alignment(metadata_, head);
  const uint64_t data = padded(head.at(), alignment), size = map_->bytes().size();
  uint64_t expected = 0, end = head.at();
  for (GgufTensor& tensor : tensors_) {
    if (tensor.begin != expected)
      throw checkpoint_error(
          "'{}': tensor '{}' begins at byte {} of the data, and the tensors before it end at {}: an overlap "
          "or a hole.",
          file, tensor.name, tensor.begin, expected);
    tensor.begin += data;
    end = tensor.begin + tensor.bytes();
    if (end > size)
      throw checkpoint_error("'{}': tensor '{}' ends at byte {}, and the file at {}: it is truncated.", file,
                             tensor.name, end, size);
    expected = padded(expected + tensor.bytes(), alignment);
  }
  // The last one need not be filled up.
  if (size > padded(std::max(end, data), alignment))
    throw checkpoint_error("'{}' has {} bytes more than its tensors take.", file,
                           size - padded(std::max(end, data), alignment));
}

const GgufTensor* GgufFile::find(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &tensors_[found->second];
}

namespace {

class GgufOutput {
 public:
  GgufOutput(const fs::path& path, const fs::path& final_path) : file_(path, final_path) {}
  void put(const void* bytes, size_t size) {
    file_.write(bytes, size);
    at_ += size;
  }
  template <class Number>
  void number(Number number) {
    put(&number, sizeof number);
  }
  void text(const std::string& text) {
    number<uint64_t>(text.size());
    put(text.data(), text.size());
  }
  void value(const GgufValue& value) {
    if (value.list) {
      number(static_cast<uint32_t>(GgufKind::kArray));
      number(static_cast<uint32_t>(value.kind));
      number<uint64_t>(value.count());
    } else {
      number(static_cast<uint32_t>(value.kind));
    }
    put(value.bytes.data(), value.bytes.size());
    for (const std::string& text : value.texts) this->text(text);
  }
  void pad() {
    static constexpr char kZeros[kUsualAlignment] = {};
    put(kZeros, padded(at_, kUsualAlignment) - at_);
  }
  uint64_t at() const { return at_; }
  void close() { file_.close(); }

 private:
  FileWriter file_;
  uint64_t at_ = 0;
};

}  // namespace

void write_gguf(const fs::path& path, const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors,
                const std::function<void(size_t tensor, const PutBytes& put)>& data) {
  const fs::path beside = partial_path(path);
  try {
    GgufOutput out(beside, path);
    out.put(kMagic.data(), kMagic.size());
    out.number<uint32_t>(3);
    out.number<uint64_t>(tensors.size());
    out.number<uint64_t>(metadata.entries().size());
    for (const auto& [key, value] : metadata.entries()) {
      out.text(key);
      out.value(value);
    }
    uint64_t offset = 0;
    for (const GgufTensor& tensor : tensors) {
      out.text(tensor.name);
      out.number(static_cast<uint32_t>(tensor.sizes.size()));
      for (const int64_t size : tensor.sizes) out.number(size);
      out.number(tensor.type->number);
      out.number(offset);
      offset = padded(offset + tensor.bytes(), kUsualAlignment);
    }
    out.pad();
    for (size_t i = 0; i < tensors.size(); ++i) {
      const uint64_t begin = out.at();
      data(i, [&](const void* bytes, size_t size) { out.put(bytes, size); });
      if (out.at() - begin != tensors[i].bytes())
        throw std::logic_error("a tensor has other bytes than its shape says");
      out.pad();
    }
    out.close();
    move_path(beside, path);
    sync_folder(path.has_parent_path() ? path.parent_path() : fs::path("."));
  } catch (...) {
    std::error_code ignored;
    fs::remove(beside, ignored);
    throw;
  }
}

}  // namespace tightloop
