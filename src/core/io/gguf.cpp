#include "core/io/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>

namespace tightloop {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

namespace {

constexpr GgmlType kGgmlTypes[] = {
    {0, "F32", 1, 4},       {1, "F16", 1, 2},       {2, "Q4_0", 32, 18},    {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},    {7, "Q5_1", 32, 24},    {8, "Q8_0", 32, 34},    {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},  {11, "Q3_K", 256, 110}, {12, "Q4_K", 256, 144}, {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210}, {15, "Q8_K", 256, 292}, {24, "I8", 1, 1},       {25, "I16", 1, 2},
    {26, "I32", 1, 4},      {27, "I64", 1, 8},      {28, "F64", 1, 8},      {30, "BF16", 1, 2},
};

template <class Number>
Number number_at(const std::string& bytes, uint64_t i) {
  Number number;
  std::memcpy(&number, bytes.data() + i * sizeof number, sizeof number);
  return number;
}

/// 1e-5 where a file has the float next to it.
double shortest(float number) {
  char text[32];
  const auto written = std::to_chars(text, text + sizeof text, number);
  double value = number;
  std::from_chars(text, written.ptr, value);
  return value;
}

}  // namespace

size_t size_of(GgufKind kind) {
  switch (kind) {
    case GgufKind::kUint8:
    case GgufKind::kInt8:
    case GgufKind::kBool:
      return 1;
    case GgufKind::kUint16:
    case GgufKind::kInt16:
      return 2;
    case GgufKind::kUint32:
    case GgufKind::kInt32:
    case GgufKind::kFloat32:
      return 4;
    case GgufKind::kUint64:
    case GgufKind::kInt64:
    case GgufKind::kFloat64:
      return 8;
    case GgufKind::kString:
    case GgufKind::kArray:
      break;
  }
  return 0;
}

const GgmlType* GgmlType::of(uint32_t number) {
  for (const GgmlType& type : kGgmlTypes)
    if (type.number == number) return &type;
  return nullptr;
}

int64_t GgufTensor::values() const {
  int64_t values = 1;
  for (const int64_t size : sizes) values *= size;
  return values;
}

uint64_t GgufTensor::bytes() const { return static_cast<uint64_t>(values()) / type->values * type->bytes; }

GgufValue GgufValue::of(const std::vector<int32_t>& numbers) {
  return {.kind = GgufKind::kInt32,
          .list = true,
          .bytes = {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int32_t)}};
}

GgufValue GgufValue::of(const std::vector<float>& numbers) {
  return {.kind = GgufKind::kFloat32,
          .list = true,
          .bytes = {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)}};
}

uint64_t GgufValue::count() const {
  return kind == GgufKind::kString ? texts.size() : bytes.size() / size_of(kind);
}

std::optional<int64_t> GgufValue::integer(uint64_t i) const {
  if (i >= count()) return {};
  switch (kind) {
    case GgufKind::kUint8:
      return number_at<uint8_t>(bytes, i);
    case GgufKind::kInt8:
      return number_at<int8_t>(bytes, i);
    case GgufKind::kUint16:
      return number_at<uint16_t>(bytes, i);
    case GgufKind::kInt16:
      return number_at<int16_t>(bytes, i);
    case GgufKind::kUint32:
      return number_at<uint32_t>(bytes, i);
    case GgufKind::kInt32:
      return number_at<int32_t>(bytes, i);
    case GgufKind::kInt64:
      return number_at<int64_t>(bytes, i);
    case GgufKind::kUint64:
      if (const auto value = number_at<uint64_t>(bytes, i); std::in_range<int64_t>(value))
        return static_cast<int64_t>(value);
      return {};
    default:
      return {};
  }
}

std::optional<double> GgufValue::number(uint64_t i) const {
  if (i >= count()) return {};
  if (kind == GgufKind::kFloat32) return shortest(number_at<float>(bytes, i));
  if (kind == GgufKind::kFloat64) return number_at<double>(bytes, i);
  if (const auto whole = integer(i)) return static_cast<double>(*whole);
  return {};
}

std::optional<bool> GgufValue::flag() const {
  if (kind != GgufKind::kBool || list) return {};
  return bytes[0] != 0;
}

const GgufValue* GgufMetadata::find(const std::string& key) const {
  const auto found = places_.find(key);
  return found == places_.end() ? nullptr : &entries_[found->second].second;
}

bool GgufMetadata::add(std::string key, GgufValue value) {
  if (!places_.emplace(key, entries_.size()).second) return false;
  entries_.emplace_back(std::move(key), std::move(value));
  return true;
}

bool is_gguf_name(const fs::path& path) { return path.extension() == ".gguf"; }

}  // namespace tightloop
