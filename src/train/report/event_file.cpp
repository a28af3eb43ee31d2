#include "train/report/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "train/report/chart_values.h"

namespace tightloop {

namespace {

static_assert(std::endian::native == std::endian::little, "both formats are, and bytes are copied");

template <class T>
std::string bytes_of(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

/// Fields of a message: a key of number and kind, then the value.
enum WireKind : uint8_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };
std::string wire_key(int number, WireKind kind) { return varint(static_cast<uint64_t>(number) << 3 | kind); }
std::string integer_field(int number, int64_t value) {
  return wire_key(number, kVarint) + varint(static_cast<uint64_t>(value));
}
std::string double_field(int number, double value) { return wire_key(number, kFixed64) + bytes_of(value); }
std::string float_field(int number, float value) { return wire_key(number, kFixed32) + bytes_of(value); }
std::string bytes_field(int number, std::string_view bytes) {
  return wire_key(number, kLength) + varint(bytes.size()) + std::string(bytes);
}
std::string doubles_field(int number, const std::vector<double>& values) {
  std::string bytes;
  for (const double value : values) bytes += bytes_of(value);
  return bytes_field(number, bytes);
}

// Numbers of fields, as the .proto files of TensorFlow and TensorBoard have them.
namespace proto {
constexpr int kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5,
              kEventSessionLog = 7;
constexpr int kSessionLogStatus = 1, kSessionStart = 1;
constexpr int kSummaryValue = 1;
constexpr int kValueTag = 1, kValueSimple = 2, kValueHisto = 5, kValueTensor = 8, kValueMetadata = 9;
constexpr int kHistoMin = 1, kHistoMax = 2, kHistoNum = 3, kHistoSum = 4, kHistoSumSquares = 5,
              kHistoBucketLimit = 6, kHistoBucket = 7;
constexpr int kMetadataPluginData = 1, kPluginName = 1;
constexpr int kTensorDtype = 1, kTensorShape = 2, kTensorString = 8, kDtypeString = 7;
constexpr int kShapeDim = 2, kDimSize = 1;
}  // namespace proto

/// When the newest file of a folder began, by its name; 0 where there is none.
int64_t newest_event_file(const fs::path& folder, std::string_view prefix) {
  int64_t newest = 0;
  for (const fs::path& entry : folder_entries(folder)) {
    const std::string name = entry.filename().string();
    int64_t seconds = 0;
    if (name.starts_with(prefix))
      std::from_chars(name.data() + prefix.size(), name.data() + name.size(), seconds);
    newest = std::max(newest, seconds);
  }
  return newest;
}

}  // namespace

std::string tf_record(std::string_view bytes) {
  // CRCs of data that itself holds CRCs are weak, hence the mask.
  const auto masked = [](std::string_view of) {
    const uint32_t crc = crc32c(of);
    return bytes_of<uint32_t>((crc >> 15 | crc << 17) + 0xA282EAD8u);
  };
  const std::string length = bytes_of<uint64_t>(bytes.size());
  return length + masked(length) + std::string(bytes) + masked(bytes);
}

std::string scalar_summary(std::string_view tag, double value) {
  using namespace proto;
  return bytes_field(kValueTag, tag) + float_field(kValueSimple, static_cast<float>(value));
}

std::string histogram_summary(std::string_view tag, const std::vector<double>& values, int bins) {
  using namespace proto;
  const Histogram histogram = histogram_of(values, bins);
  double sum = 0, squares = 0;
  for (const double value : values) sum += value, squares += value * value;
  const auto [low, high] = std::ranges::minmax(values);
  const std::string histo =
      double_field(kHistoMin, low) + double_field(kHistoMax, high) +
      double_field(kHistoNum, static_cast<double>(values.size())) + double_field(kHistoSum, sum) +
      double_field(kHistoSumSquares, squares) +
      doubles_field(kHistoBucketLimit, {histogram.edges.begin() + 1, histogram.edges.end()}) +
      doubles_field(kHistoBucket, histogram.counts);
  return bytes_field(kValueTag, tag) + bytes_field(kValueHisto, histo);
}

std::string text_summary(std::string_view tag, std::string_view markdown) {
  using namespace proto;
  const std::string one = bytes_field(kShapeDim, integer_field(kDimSize, 1));
  const std::string tensor = integer_field(kTensorDtype, kDtypeString) + bytes_field(kTensorShape, one) +
                             bytes_field(kTensorString, markdown);
  const std::string metadata = bytes_field(kMetadataPluginData, bytes_field(kPluginName, "text"));
  return bytes_field(kValueTag, tag) + bytes_field(kValueTensor, tensor) +
         bytes_field(kValueMetadata, metadata);
}

EventFile::EventFile(const fs::path& folder, double time, int64_t purge_step) {
  using namespace proto;
  constexpr std::string_view kPrefix = "events.out.tfevents.";
  make_folder(folder);
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const int64_t seconds = std::max(static_cast<int64_t>(time), newest_event_file(folder, kPrefix) + 1);
  path_ = folder / fmt::format("{}{:010}.{}.{}", kPrefix, seconds, host, ::getpid());
  file_.open(path_, std::ios::binary | std::ios::app);
  if (!file_) throw checkpoint_error("cannot write '{}'.", path_.string());
  const std::string begin = double_field(kEventWallTime, time);
  file_ << tf_record(begin + bytes_field(kEventFileVersion, "brain.Event:2"));
  const std::string restart = bytes_field(kEventSessionLog, integer_field(kSessionLogStatus, kSessionStart));
  // Of a run's first file, too: TensorBoard takes the first that it sees for a start and purges by later
  // ones.
  file_ << tf_record(begin + (purge_step > 0 ? integer_field(kEventStep, purge_step) : "") + restart);
}

void EventFile::add(double time, int64_t step, const std::vector<std::string>& summaries) {
  using namespace proto;
  std::string all;
  for (const std::string& summary : summaries) all += bytes_field(kSummaryValue, summary);
  file_ << tf_record(double_field(kEventWallTime, time) + integer_field(kEventStep, step) +
                     bytes_field(kEventSummary, all));
}

void EventFile::flush() {
  if (!path_exists(path_)) throw checkpoint_error("'{}' was removed while it was written.", path_.string());
  if (!file_.flush()) throw checkpoint_error("cannot write '{}' (is the disk full?).", path_.string());
}

}  // namespace tightloop
