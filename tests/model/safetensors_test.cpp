#include "model/files/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include <cstring>
#include <numeric>

#include "core/files.h"
#include "fuzz.h"
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
      eight);                                                                       // overlap
  refuse(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", eight);                     // no dtype
  refuse(R"({"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})", eight);     // a fraction
  refuse(R"({"a":{"dtype":"F32","shape":[true,2],"data_offsets":[0,8]}})", eight);  // not a number
  refuse(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-8,-4]}})", eight);     // before the file
  refuse(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", eight);
  refuse(R"({"a":{"dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}})", "");
  refuse(R"({"a":7})", eight);
  refuse(R"({"__metadata__":{"k":1}})", "");
  refuse("{\"\xff\xfe\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", eight);  // not UTF-8
  EXPECT_NE(
      refuse(
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})",
          eight)
          .find("twice"),
      std::string::npos);
}

TEST(Safetensors, AHeaderOfMoreThan100MegabytesIsRefused) {
  const TempFolder folder;
  std::string bytes(8, '\0');
  const uint64_t size = 100'000'001;
  std::memcpy(bytes.data(), &size, 8);
  write_file_whole(folder / "large", bytes + "{}");
  fs::resize_file(folder / "large", 8 + size);  // the bytes are there, as a hole
  EXPECT_NE(error_of(ExitCode::kCheckpoint, [&] { read_safetensors(folder / "large"); }).find("100000001"),
            std::string::npos);
}

TEST(Safetensors, TensorsThatStandUnalignedAreReadRight) {
  const TempFolder folder;
  const float value = 1.5f;
  std::string data("abc");
  data.append(reinterpret_cast<const char*>(&value), 4);
  write_raw(
      folder / "t",
      R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"f":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}})",
      data);
  const auto read = read_safetensors(folder / "t");
  EXPECT_EQ(read.tensors.at("f").item<float>(), 1.5f);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(read.tensors.at("f").const_data_ptr()) % 4, 0u);
  EXPECT_EQ(read.tensors.at("b")[2].item<int>(), 'c');
}

TEST(Safetensors, BooleansAreZeroOrOne) {
  const TempFolder folder;
  write_raw(folder / "t", R"({"b":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})",
            std::string("\0\1\7", 3));
  const auto read = read_safetensors(folder / "t").tensors.at("b");
  EXPECT_EQ(read.sum().item<int64_t>(), 2);
  EXPECT_EQ(*static_cast<const char*>(read[2].const_data_ptr()), 1);
}

TEST(Safetensors, FilesOfNoiseEndInASentenceOrInTensors) {
  const TempFolder folder;
  write_safetensors(folder / "seed", {{"a", at::randn({3, 5})}, {"b", at::arange(4)}}, {{"k", "v"}});
  const std::vector<std::string> seeds{read_file(folder / "seed")};
  uint64_t whole = 0;
  testing::fuzz(seeds, testing::fuzz_runs(1500),
                {"\"", "[0,4]", "-1", "1e99", "{", "}", "\"a\":", "F64", "18446744073709551616", "\xc3"},
                [&](std::string& bytes, Random&) {
                  {
                    FileWriter file(folder / "noise");  // not synced: this is done often
                    file.write(bytes);
                  }
                  try {
                    for (const auto& [name, tensor] : read_safetensors(folder / "noise").tensors)
                      tensor.to(at::kDouble).sum();
                    ++whole;
                  } catch (const Error& error) {
                    EXPECT_EQ(error.code(), ExitCode::kCheckpoint) << error.what();
                  }
                });
  EXPECT_GT(whole, 0u) << "damage to the numbers alone goes unnoticed";
}

TEST(Safetensors, ShardsAreReadThroughTheirIndex) {
  const TempFolder folder;
  write_safetensors(folder / "m-1.safetensors", {{"a", at::ones({2})}});
  write_safetensors(folder / "m-2.safetensors", {{"b", at::ones({3})}, {"c", at::ones({4})}});
  const auto index = [&](const std::string& map) {
    write_file_whole(folder / "model.safetensors.index.json", R"({"metadata":{},"weight_map":)" + map + "}");
  };
  index(R"({"a":"m-1.safetensors","b":"m-2.safetensors","c":"m-2.safetensors"})");
  const auto files = read_tensor_files(folder.path());
  EXPECT_EQ(files.tensors.size(), 3u);
  EXPECT_EQ(files.file_of.at("c").filename(), "m-2.safetensors");
  const auto refuse = [&](const std::string& map, const std::string& word) {
    index(map);
    const auto message = error_of(ExitCode::kCheckpoint, [&] { read_tensor_files(folder.path()); });
    EXPECT_NE(message.find(word), std::string::npos) << message;
  };
  refuse(R"({"a":"m-1.safetensors","b":"m-1.safetensors"})", "'b'");  // not there
  refuse(R"({"a":"m-1.safetensors","b":"m-2.safetensors"})", "'c'");  // not listed
  refuse(R"({"a":"../m-1.safetensors"})", "outside");
  refuse(R"({"a":"m-3.safetensors"})", "m-3");
  refuse("7", "damaged");
}

TEST(Safetensors, AMissingFileIsNamed) {
  EXPECT_NE(error_of(ExitCode::kCheckpoint, [] { read_safetensors("no/such.safetensors"); }).find("no/such"),
            std::string::npos);
}

TEST(Safetensors, WritingIsCountedAndCanBeStopped) {
  const TempFolder folder;
  const NamedTensors tensors{{"a", at::ones({5 << 20})}, {"b", at::ones({3})}};  // 20 MiB
  EXPECT_EQ(bytes_of(tensors), (20u << 20) + 12);
  std::vector<uint64_t> pieces;
  write_safetensors(folder / "t", tensors, {}, [&](uint64_t bytes) { pieces.push_back(bytes); });
  EXPECT_GT(pieces.size(), 3u);
  EXPECT_EQ(std::accumulate(pieces.begin(), pieces.end(), uint64_t{0}),
            std::filesystem::file_size(folder / "t"));
  EXPECT_THROW(
      write_safetensors(folder / "u", tensors, {}, [](uint64_t) { throw std::runtime_error("stop"); }),
      std::runtime_error);
}

}  // namespace
}  // namespace tightloop
