#include "core/io/gguf.h"

#include <cstring>

#include "fuzz.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;

struct SmallGguf {
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;
  std::vector<std::string> data;

  SmallGguf() {
    metadata.add("general.architecture", GgufValue::of("test"));
    metadata.add("test.size", GgufValue::of(uint32_t{7}));
    metadata.add("test.eps", GgufValue::of(1e-5f));
    metadata.add("test.exact", GgufValue::of(0.1));
    metadata.add("test.flag", GgufValue::of(true));
    metadata.add("test.words", GgufValue::of(std::vector<std::string>{"one", "", "zwei\n"}));
    metadata.add("test.numbers", GgufValue::of(std::vector<int32_t>{-1, 2, 3}));
    add("a", "F32", {3, 5}, 60);
    add("b", "Q8_0", {32, 2}, 68);
    add("c", "BF16", {16}, 32);  // ends where a block of 32 bytes does: no cut of the file is unnoticed
  }
  void add(const std::string& name, std::string_view type, std::vector<int64_t> sizes, size_t bytes) {
    for (uint32_t number = 0; number < 40; ++number)
      if (const GgmlType* known = GgmlType::of(number); known && known->name == type)
        tensors.push_back({name, known, std::move(sizes)});
    data.push_back(std::string(bytes, static_cast<char>('a' + data.size())));
  }
  void write(const fs::path& path) const {
    write_gguf(path, metadata, tensors,
               [&](size_t i, const PutBytes& put) { put(data[i].data(), data[i].size()); });
  }
};

TEST(Gguf, WhatIsWrittenIsReadBack) {
  const TempFolder folder;
  const SmallGguf small;
  small.write(folder / "t.gguf");
  const GgufFile file(folder / "t.gguf");
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.metadata().entries(), small.metadata.entries());
  EXPECT_EQ(file.metadata().find("test.size")->integer(), 7);
  EXPECT_EQ(file.metadata().find("test.eps")->number(), 1e-5) << "the shortest decimal, not the float's own";
  EXPECT_EQ(file.metadata().find("test.exact")->number(), 0.1);
  EXPECT_EQ(file.metadata().find("test.flag")->flag(), true);
  EXPECT_EQ(*file.metadata().find("general.architecture")->text(), "test");
  EXPECT_EQ(file.metadata().find("test.numbers")->integer(0), -1);
  EXPECT_EQ(file.metadata().find("test.numbers")->integer(3), std::nullopt);
  ASSERT_EQ(file.tensors().size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const GgufTensor& tensor = file.tensors()[i];
    EXPECT_EQ(tensor.sizes, small.tensors[i].sizes);
    EXPECT_EQ(tensor.type, small.tensors[i].type);
    EXPECT_EQ(tensor.begin % 32, 0u);
    EXPECT_EQ(std::string(file.data(tensor), tensor.bytes()), small.data[i]);
    EXPECT_EQ(file.find(tensor.name), &tensor);
  }
  EXPECT_EQ(file.find("d"), nullptr);
}

TEST(Gguf, TheFileAppearsWholeOrNotAtAll) {
  const TempFolder folder;
  const SmallGguf small;
  EXPECT_THROW(write_gguf(folder / "t.gguf", small.metadata, small.tensors,
                          [](size_t, const PutBytes&) { throw std::runtime_error("stop"); }),
               std::runtime_error);
  EXPECT_THROW(write_gguf(folder / "t.gguf", small.metadata, small.tensors,
                          [](size_t, const PutBytes& put) { put("xy", 2); }),
               std::logic_error)
      << "bytes that are not those of the shape";
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Gguf, EveryTruncationIsNoticed) {
  const TempFolder folder;
  SmallGguf().write(folder / "t.gguf");
  const auto bytes = read_file(folder / "t.gguf");
  for (size_t size = 0; size < bytes.size(); ++size) {
    testing::write_file(folder / "cut", bytes.substr(0, size));
    const auto message = error_of(ExitCode::kCheckpoint, [&] { GgufFile{folder / "cut"}; });
    ASSERT_NE(message.find("cut'"), std::string::npos) << size;
  }
  testing::write_file(folder / "long", bytes + "x");
  EXPECT_NE(error_of(ExitCode::kCheckpoint, [&] { GgufFile{folder / "long"}; }).find("1 bytes more"),
            std::string::npos);
}

TEST(Gguf, TheLastTensorNeedNotBeFilledUp) {
  const TempFolder folder;
  SmallGguf small;
  small.tensors.pop_back(), small.data.pop_back();
  small.write(folder / "t.gguf");
  const auto bytes = read_file(folder / "t.gguf");
  testing::write_file(folder / "t.gguf",
                      bytes.substr(0, bytes.size() - 28));  // 68 bytes are 96 with the zeros
  EXPECT_EQ(GgufFile(folder / "t.gguf").tensors().size(), 2u);
}

/// A file, number by number.
struct RawGguf {
  std::string bytes = "GGUF";
  template <class Number>
  RawGguf& number(Number number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
    return *this;
  }
  RawGguf& u32(uint32_t value) { return number(value); }
  RawGguf& u64(uint64_t value) { return number(value); }
  RawGguf& text(const std::string& text) {
    u64(text.size());
    bytes += text;
    return *this;
  }
  RawGguf& head(uint64_t tensors, uint64_t entries) { return u32(3).u64(tensors).u64(entries); }
  RawGguf& tensor(const std::string& name, const std::vector<uint64_t>& sizes, uint32_t type,
                  uint64_t offset) {
    text(name).u32(static_cast<uint32_t>(sizes.size()));
    for (const uint64_t size : sizes) u64(size);
    return u32(type).u64(offset);
  }
  RawGguf& data(size_t size) {
    bytes.resize((bytes.size() + 31) / 32 * 32);
    bytes.append(size, 'x');
    return *this;
  }
};

TEST(Gguf, HeadsThatLieAreRefusedWithTheirPlace) {
  const TempFolder folder;
  const auto refuse = [&](const RawGguf& raw, const std::string& word) {
    testing::write_file(folder / "bad.gguf", raw.bytes);
    const auto message = error_of(ExitCode::kCheckpoint, [&] { GgufFile{folder / "bad.gguf"}; });
    EXPECT_NE(message.find(word), std::string::npos) << message;
    EXPECT_NE(message.find("bad.gguf"), std::string::npos) << message;
  };
  const auto none = [] { return RawGguf().head(0, 0); };
  constexpr uint64_t kHuge = ~uint64_t{0};
  testing::write_file(folder / "good.gguf", none().bytes);
  EXPECT_TRUE(GgufFile(folder / "good.gguf").tensors().empty());
  RawGguf other;
  other.bytes = "GGML0000";
  refuse(other, "does not begin with");
  refuse(RawGguf().u32(1).u64(0).u64(0), "version 1");
  refuse(RawGguf().u32(0x03000000).u64(0).u64(0), "big-endian");
  refuse(RawGguf().head(kHuge, 0), "number of tensors is 18446744073709551615");
  refuse(RawGguf().head(1, 0), "number of tensors is 1");
  refuse(RawGguf().head(0, kHuge), "metadata entries");
  refuse(RawGguf().head(0, 1).u64(kHuge).u64(0), "at byte 32");                 // a name's length
  refuse(RawGguf().head(0, 1).text("k").u32(13).u64(0), "is 13");               // no such type
  refuse(RawGguf().head(0, 1).text("k").u32(8).u64(kHuge).u64(0), "'k'");       // a text's length
  refuse(RawGguf().head(0, 1).text("k").u32(9).u32(5).u64(kHuge), "list 'k'");  // a list's
  refuse(RawGguf().head(0, 1).text("k").u32(9).u32(8).u64(1000).u64(0), "1000");
  refuse(RawGguf().head(0, 1).text("k").u32(9).u32(9).u64(0), "list of lists");
  refuse(RawGguf().head(0, 2).text("k").u32(4).u32(1).text("k").u32(4).u32(1), "'k' twice");
  refuse(RawGguf().head(0, 1).text("general.alignment").u32(4).u32(3), "alignment");
  refuse(RawGguf().head(0, 1).text("general.alignment").u32(4).u32(0), "alignment");
  refuse(RawGguf().head(0, 1).text("general.alignment").u32(8).text("32"), "alignment");
  refuse(RawGguf().head(1, 0).tensor("t", {}, 0, 0).data(64), "0 dimensions");
  refuse(RawGguf().head(1, 0).tensor("t", {1, 1, 1, 1, 1}, 0, 0).data(64), "5 dimensions");
  refuse(RawGguf().head(1, 0).tensor("t", {0}, 0, 0).data(64), "impossible shape");
  refuse(RawGguf().head(1, 0).tensor("t", {kHuge}, 0, 0).data(64), "impossible shape");
  refuse(RawGguf().head(1, 0).tensor("t", {1u << 31, 1u << 31, 1u << 31}, 0, 0).data(64), "impossible shape");
  refuse(RawGguf().head(1, 0).tensor("t", {8}, 99, 0).data(64), "type 99");
  refuse(RawGguf().head(1, 0).tensor("t", {33}, 8, 0).data(64), "blocks of 32");
  refuse(RawGguf().head(1, 0).tensor("t", {8}, 0, 32).data(64), "overlap or a hole");
  refuse(RawGguf().head(1, 0).tensor("t", {8}, 0, kHuge - 31).data(64), "overlap or a hole");
  refuse(RawGguf().head(1, 0).tensor("t", {9}, 0, 0).data(32), "truncated");
  refuse(RawGguf().head(1, 0).tensor("t", {1u << 20, 1u << 20, 1u << 16}, 0, 0).data(32), "truncated");
  refuse(RawGguf().head(1, 0).tensor("t", {8}, 0, 0).data(96), "64 bytes more");
  refuse(RawGguf().head(2, 0).tensor("t", {8}, 0, 0).tensor("t", {8}, 0, 32).data(64), "'t' twice");
  refuse(RawGguf().head(2, 0).tensor("t", {8}, 0, 0).tensor("u", {8}, 0, 0).data(64), "overlap or a hole");
  EXPECT_NE(error_of(ExitCode::kCheckpoint, [&] { GgufFile{folder / "none.gguf"}; }).find("none.gguf"),
            std::string::npos);
}

TEST(Gguf, FilesOfNoiseEndInASentenceOrAreRead) {
  const TempFolder folder;
  SmallGguf().write(folder / "seed");
  const std::vector<std::string> seeds{read_file(folder / "seed")};
  const auto word = [](uint64_t number) { return std::string(reinterpret_cast<const char*>(&number), 8); };
  uint64_t whole = 0, sum = 0;
  testing::fuzz(seeds, testing::fuzz_runs(3000),
                {word(0), word(1), word(32), word(~0ull), word(1ull << 40), std::string("\x09\0\0\0", 4),
                 std::string("\x08\0\0\0", 4), "general.alignment"},
                [&](std::string& bytes, Random&) {
                  testing::write_file(folder / "noise", bytes);
                  try {
                    const GgufFile file(folder / "noise");
                    for (const GgufTensor& tensor : file.tensors())
                      for (uint64_t i = 0; i < tensor.bytes(); ++i) sum += file.data(tensor)[i];
                    for (const auto& [key, value] : file.metadata().entries()) {
                      for (uint64_t i = 0; i < value.count(); ++i)
                        sum +=
                            static_cast<uint64_t>(value.integer(i).value_or(1)) + value.number(i).has_value();
                      sum += value.flag().has_value() + (value.text() != nullptr);
                    }
                    ++whole;
                  } catch (const Error& error) {
                    EXPECT_EQ(error.code(), ExitCode::kCheckpoint) << error.what();
                  }
                });
  EXPECT_GT(whole, 0u) << "damage to the numbers alone goes unnoticed";
  EXPECT_NE(sum, 0u);
}

}  // namespace
}  // namespace tightloop
