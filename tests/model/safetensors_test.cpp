#include "model/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include <cstring>

#include "core/files.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;

void write_raw(const fs::path& path, const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(bytes.data(), &size, 8);
  write_file_whole(path, bytes + header + data);
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const TempFolder folder;
  const NamedTensors tensors{{"f32", at::randn({3, 5})},
                             {"bf16", at::randn({7}).to(at::kBFloat16)},
                             {"i64", at::arange(4)},
                             {"scalar", at::ones({})},
                             {"empty", at::empty({0, 3})},
                             {"strided", at::randn({4, 6}).t()},
                             {"name \"with\" ünïcode", at::ones({2}).to(at::kHalf)}};
  write_safetensors(folder / "t", tensors, {{"made", "by a test"}});
  const auto read = read_safetensors(folder / "t");
  ASSERT_EQ(read.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_TRUE(at::equal(read.tensors.at(name), tensor)) << name;
    EXPECT_EQ(read.tensors.at(name).scalar_type(), tensor.scalar_type()) << name;
  }
  EXPECT_EQ(read.metadata.at("made"), "by a test");
}

TEST(Safetensors, EveryTruncationIsNoticed) {
  const TempFolder folder;
  write_safetensors(folder / "t", {{"a", at::randn({3, 5})}, {"b", at::randn({2})}});
  const auto bytes = read_file(folder / "t");
  for (size_t size = 0; size < bytes.size(); ++size) {
    write_file_whole(folder / "cut", bytes.substr(0, size));
    const auto message = error_of(ExitCode::kCheckpoint, [&] { read_safetensors(folder / "cut"); });
    ASSERT_NE(message.find("cut"), std::string::npos) << size;
  }
}

TEST(Safetensors, HeadersThatLieAreRefused) {
  const TempFolder folder;
  const auto refuse = [&](const std::string& header, const std::string& data) {
    write_raw(folder / "bad", header, data);
    return error_of(ExitCode::kCheckpoint, [&] { read_safetensors(folder / "bad"); });
  };
  const std::string eight(8, 'x');
  refuse("not json", eight);
  refuse("[]", "");
  refuse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", eight + "y");  // extra bytes
  refuse(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", eight);        // wrong size
  refuse(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", eight);        // hole
  refuse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", eight);        // backwards
  refuse(R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})", eight);        // unknown dtype
  refuse(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", eight);       // negative
  refuse(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", eight);  // overflow
  refuse(
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
      eight);                                                    // overlap
  refuse(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", eight);  // no dtype
}

TEST(Safetensors, AMissingFileIsNamed) {
  EXPECT_NE(error_of(ExitCode::kCheckpoint, [] { read_safetensors("no/such.safetensors"); }).find("no/such"),
            std::string::npos);
}

}  // namespace
}  // namespace tightloop
