#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace tightloop {

/// One record of a TFRecord file: length, masked CRC-32C of the length, the bytes, masked CRC-32C of them.
std::string tf_record(std::string_view bytes);

/// Messages of tensorflow/core/framework/summary.proto (Summary.Value) in the wire format of protobuf.
std::string scalar_summary(std::string_view tag, double value);
std::string histogram_summary(std::string_view tag, const std::vector<double>& values, int bins = 30);
/// As Markdown, for the text dashboard.
std::string text_summary(std::string_view tag, std::string_view markdown);

/// A file of TensorBoard, events.out.tfevents.SECONDS.HOST.PID, which TensorBoard may read while it is
/// written.
class EventFile {
 public:
  /// A new file in `folder`, which sorts behind all that are there: TensorBoard reads them in that order.
  /// With `purge_step` above 0 it says that points from that step on, in files before it, are no longer true.
  EventFile(const std::filesystem::path& folder, double time, int64_t purge_step);
  /// Summaries of a step.
  void add(double time, int64_t step, const std::vector<std::string>& summaries);
  /// A checkpoint error where something since the last time could not be written.
  void flush();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace tightloop
