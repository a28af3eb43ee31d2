#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tightloop {

/// The fields of a protocol buffer, one after the other. Only what a model file needs.
class ProtobufFields {
 public:
  explicit ProtobufFields(std::string_view bytes) : bytes_(bytes) {}

  uint64_t number = 0;     // of the field
  uint64_t value = 0;      // of an integer
  std::string_view bytes;  // of a string or a message, or the four of a float

  bool next() {
    uint64_t key = 0;
    if (!varint(key)) return false;
    number = key >> 3;
    switch (key & 7) {
      case 0:
        return varint(value);
      case 2:
        return varint(value) && take(value);
      case 5:
        return take(4);
      case 1:
        return take(8);
      default:
        return false;
    }
  }

 private:
  bool varint(uint64_t& out) {
    out = 0;
    for (int shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_[0]);
      bytes_.remove_prefix(1);
      out |= uint64_t{byte & 127u} << shift;
      if (byte < 128) return true;
    }
    return false;
  }
  bool take(uint64_t size) {
    if (size > bytes_.size()) return false;
    bytes = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }

  std::string_view bytes_;
};

/// Writes such fields.
class ProtobufOutput {
 public:
  void number(uint64_t field, uint64_t value) {
    varint(field << 3);
    varint(value);
  }
  void text(uint64_t field, std::string_view bytes) {
    varint(field << 3 | 2);
    varint(bytes.size());
    bytes_ += bytes;
  }
  void real(uint64_t field, float value) {
    varint(field << 3 | 5);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void fields(std::string_view bytes) { bytes_ += bytes; }  // written already
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_ += static_cast<char>(value | 128);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

}  // namespace tightloop
