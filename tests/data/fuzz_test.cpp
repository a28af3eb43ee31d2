// Inputs that nobody would write. The suite makes a short run of each; TIGHTLOOP_FUZZ_RUNS=1000000 a long
// one.
#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include <fstream>

#include "core/hash.h"
#include "core/plugin.h"
#include "data/byte_tokenizer.h"
#include "data/read/json_array_reader.h"
#include "data/read/json_files.h"
#include "data/read/line_reader.h"
#include "data/read/parquet.h"
#include "data/read/text_reader.h"
#include "data/render/render.h"
#include "data/store/prepare.h"
#include "data/store/shard_writer.h"
#include "data/store/shards.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::ByteTokenizer;
using testing::fuzz;
using testing::fuzz_runs;

/// A file in memory that has a path.
class MemoryFile {
 public:
  MemoryFile()
      : descriptor_(::memfd_create("fuzz", 0)), path_("/proc/self/fd/" + std::to_string(descriptor_)) {}
  ~MemoryFile() { ::close(descriptor_); }
  const fs::path& path() const { return path_; }
  void set(const std::string& bytes) {
    ASSERT_EQ(::ftruncate(descriptor_, 0), 0);
    ASSERT_EQ(::pwrite(descriptor_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }

 private:
  int descriptor_;
  fs::path path_;
};

const ByteTokenizer& fuzz_tokenizer() {
  static const ByteTokenizer instance({"<|im_start|>", "<|im_end|>"});
  return instance;
}

const std::vector<std::string> kJsonSeeds{
    R"({"text":"some text \u00e9 \ud83d\ude00","id":12345678901234567890,"x":[1.5e3,null,true]})",
    R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})",
    R"({"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":[{"type":"text","text":"a"}]}]})",
    R"({"conversations":[{"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{}}"},{"from":"gpt","value":"a"}]})",
    R"({"question":"q <<1=1>>","choices":{"text":["x","y"],"label":["A","B"]},"answer":"B"})",
    R"(["one","eins"])"};
const std::vector<std::string> kJsonWords{
    "\"",   "\\",           "\\u",           "{",         "}",         "[",  "]",  ",", ":", "null", "1e999",
    "\xff", "\xed\xa0\x80", "\"messages\":", "\"role\":", "assistant", "<<", ">>", "=", "-", "0"};

TEST(DataFuzz, JsonRecords) {
  const auto chat = std::make_shared<ChatTemplate>(ChatConfig(), fuzz_tokenizer());
  std::vector<std::unique_ptr<Renderer>> renderers;
  for (const auto format : {RecordFormat::kAuto, RecordFormat::kGsm8k, RecordFormat::kChoice}) {
    DataConfig config;
    config.format = format;
    renderers.push_back(make_json_renderer(config, fuzz_tokenizer(), chat));
  }
  renderers.push_back(make_pair_renderer({}, fuzz_tokenizer(), fuzz_tokenizer(), true));
  RecordBatch batch;
  Rendered out;
  uint64_t good = 0;
  fuzz(kJsonSeeds, fuzz_runs(20000), kJsonWords, [&](std::string& bytes, Random&) {
    batch.clear();
    Record record;
    record.bytes = bytes;
    batch.add(record);
    for (const auto& renderer : renderers) {
      renderer->render(batch[0], out);
      good += out.bad == BadKind::kNone;
      ASSERT_TRUE(out.mask.empty() || out.mask.size() == out.ids.size());
      ASSERT_EQ(out.bad == BadKind::kNone, !out.ids.empty());
    }
  });
  EXPECT_GT(good, 0u);
}

// What any splitter must keep to: no byte of a record that is not the file's, and an end.
void drain(RecordReader& reader, size_t limit) {
  RecordBatch batch;
  size_t records = 0;
  while (reader.read(batch, 7, 1 << 16)) {
    records += batch.size();
    ASSERT_LE(records, limit);
    batch.clear();
  }
}

TEST(DataFuzz, LinesListsAndTexts) {
  MemoryFile file;
  std::vector<std::string> seeds{"one\ntwo\r\n\nthree<>four\n \n\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98\x80",
                                 "\xef\xbb\xbf[[\"a\",\"b\"],{\"c\":1}]"};
  seeds.insert(seeds.end(), kJsonSeeds.begin(), kJsonSeeds.end());
  const std::vector<std::string> words{
      "\n", "\r\n", "\n\n", "<>", " ", "\t", "\xff", std::string(1, '\0'), "\xe6\xbc", "[", "]", "\""};
  const auto renderer = make_text_renderer({}, fuzz_tokenizer());
  fuzz(seeds, fuzz_runs(4000), words, [&](std::string& bytes, Random& random) {
    file.set(bytes);
    const uint64_t limit = 1 + random.below(60);
    LineRecords lines({file.path()}, limit);
    drain(lines, bytes.size() + 2);
    JsonArrayRecords list({file.path()}, limit);
    drain(list, bytes.size() + 3);
    drain(*read_json_files({file.path()}, limit), bytes.size() + 3);
    JsonArrayRecords bare({file.path()}, limit, /*bare=*/true);
    drain(bare, bytes.size() + 3);
    TextReader texts({file.path()}, {kChoices<DocumentEnd>[random.below(4)].value, "<>",
                                     16 + random.below(60), 8 + random.below(20)});
    drain(texts, bytes.size() + 2);
  });
}

TEST(DataFuzz, Utf8Scanning) {
  const auto renderer = make_text_renderer({}, fuzz_tokenizer());
  // The definition, byte by byte.
  const auto is_utf8 = [](const std::string& s) {
    for (size_t i = 0; i < s.size();) {
      const auto byte = [&](size_t k) {
        return i + k < s.size() ? static_cast<unsigned char>(s[i + k]) : 0u;
      };
      const auto more = [&](size_t k) { return (byte(k) & 0xc0) == 0x80; };
      const unsigned b = byte(0);
      if (b < 0x80) {
        i += 1;
      } else if (b >= 0xc2 && b < 0xe0 && more(1)) {
        i += 2;
      } else if (b >= 0xe0 && b < 0xf0 && more(1) && more(2) && (b != 0xe0 || byte(1) >= 0xa0) &&
                 (b != 0xed || byte(1) < 0xa0)) {
        i += 3;
      } else if (b >= 0xf0 && b < 0xf5 && more(1) && more(2) && more(3) && (b != 0xf0 || byte(1) >= 0x90) &&
                 (b != 0xf4 || byte(1) < 0x90)) {
        i += 4;
      } else {
        return false;
      }
    }
    return true;
  };
  Rendered out;
  fuzz({"plain", "\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98\x80 mixed \xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"},
       fuzz_runs(20000), {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe0\x80\xaf", "\xf0\x80", "\xc3"},
       [&](std::string& bytes, Random&) {
         Record record;
         record.bytes = bytes;
         renderer->render(record, out);
         ASSERT_EQ(out.bad == BadKind::kInvalidUtf8, !is_utf8(bytes)) << ::testing::PrintToString(bytes);
       });
}

TEST(DataFuzz, Shards) {
  testing::TempFolder folder;
  std::vector<std::string> seeds;
  for (const int64_t vocab : {300, 100000}) {
    ShardWriter writer(folder / "seed", vocab, 5);
    for (int32_t i = 0; i < 20; ++i)
      writer.append(std::vector<int32_t>(i * 40, i),
                    i % 3 ? std::vector<uint8_t>() : std::vector<uint8_t>(i * 40, i % 2), i % 4);
    writer.finish();
    std::ifstream in(folder / "seed", std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  MemoryFile file;
  uint64_t opened = 0;
  fuzz(seeds, fuzz_runs(3000), {}, [&](std::string& bytes, Random& random) {
    // A liar who knows the format: checksums and hashes made good, so that what they protect is reached.
    ShardFooter footer;
    if (bytes.size() >= sizeof footer && random.below(4)) {
      std::memcpy(&footer, bytes.data() + bytes.size() - sizeof footer, sizeof footer);
      const size_t payload = bytes.size() - sizeof footer;
      if (footer.checksums_at < payload && (payload - footer.checksums_at) % 8 == 0) {
        for (uint64_t at = 0, k = 0; at < footer.checksums_at && footer.checksums_at + k * 8 + 8 <= payload;
             at += ShardFooter::kBlock, ++k) {
          const uint64_t hash =
              hash64(bytes.data() + at, std::min(ShardFooter::kBlock, footer.checksums_at - at));
          std::memcpy(bytes.data() + footer.checksums_at + k * 8, &hash, 8);
        }
        footer.checksums_hash = hash64(bytes.data() + footer.checksums_at, payload - footer.checksums_at);
      }
      footer.magic = ShardFooter::kMagic;
      footer.hash = hash64(&footer, offsetof(ShardFooter, hash));
      std::memcpy(bytes.data() + payload, &footer, sizeof footer);
    }
    file.set(bytes);
    try {
      const ShardSet shards({file.path()}, std::nullopt);
      ++opened;
      std::vector<int32_t> ids(shards.tokens());
      std::vector<uint8_t> mask(shards.tokens());
      shards.read(0, ids.size(), ids.data());
      shards.read_mask(0, mask.size(), mask.data());
      for (uint64_t i = 0; i < shards.size(); ++i) {
        shards.source(i);
        ASSERT_LE(shards.length(i), shards.tokens());
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ExitCode::kData);
    }
  });
  EXPECT_GT(opened, 0u);
}

TEST(DataFuzz, StateOfPrepare) {
  testing::TempFolder folder;
  const std::string seed =
      R"({"all_records":3,"bad":[1,0,0],"bad_bytes":[0,9],"first_bad":["line 2: no JSON"],"key":"cf8fd3257aaf5800",)"
      R"("records":3,"shards":1,"stage":2,"train_documents":2,"train_tokens":9,"val_documents":1,"val_tokens":4})";
  const auto finished = [&](const std::string& state) {
    testing::write_file(folder / "prepare.json", state);
    try {
      require_finished(folder.path());
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData) << error.what();
      return false;
    }
  };
  uint64_t taken = 0;
  fuzz({seed}, fuzz_runs(4000), kJsonWords, [&](std::string& bytes, Random&) { taken += finished(bytes); });
  EXPECT_GT(taken, 0u);
  EXPECT_TRUE(finished(seed));
  EXPECT_FALSE(finished(R"({"key":)" + std::string(1000000, '[')));
}

TEST(DataFuzz, Parquet) {
  SKIP_WITHOUT(testing::python());
  SKIP_WITHOUT(program_folder() / kParquetPlugin);
  testing::TempFolder folder;
  ASSERT_EQ(testing::run_python("tests/data/make_parquet.py", folder.path()), 0);
  std::vector<std::string> seeds;
  for (const char* name : {"dictionary", "chat", "choice", "empty"}) {
    std::ifstream in(folder / (std::string(name) + ".parquet"), std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  MemoryFile file;
  fuzz(seeds, fuzz_runs(300), {"PAR1"}, [&](std::string& bytes, Random&) {
    file.set(bytes);
    const auto reader =
        open_parquet({file.path()}, {"text", "messages", "question", "choices", "answer"}, 1 << 20);
    drain(*reader, 100000);
  });
}

TEST(DataFuzz, CompressedStreams) {
  testing::TempFolder folder;
  MemoryFile file;
  const std::string gzip(
      "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcb\x48\xcd\xc9\xc9\xe7\x02\x00\x20\x30\x3a\x36\x06\x00\x00"
      "\x00",
      26);
  const std::string zstd("\x28\xb5\x2f\xfd\x20\x06\x31\x00\x00\x68\x65\x6c\x6c\x6f\x0a", 15);
  fuzz({gzip, zstd}, fuzz_runs(4000), {"\x1f\x8b", "\x28\xb5\x2f\xfd"}, [&](std::string& bytes, Random&) {
    file.set(bytes);
    LineRecords lines({file.path()}, 1 << 20);
    drain(lines, 10'000'000);
  });
  // The seeds themselves are what they should be.
  for (const std::string& seed : {gzip, zstd}) {
    file.set(seed);
    LineReader lines(file.path(), 100);
    ASSERT_EQ(lines.next(), LineReader::Status::kLine);
    EXPECT_EQ(lines.line(), "hello");
  }
}

}  // namespace
}  // namespace tightloop
