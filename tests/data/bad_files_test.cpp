// Every kind of file that people have on their disks and should not: counts must be exact, and no good record
// may be lost because of its neighbour.
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>

#include "core/allocations.h"
#include "data/byte_tokenizer.h"
#include "data/dataset.h"
#include "data/gzip.h"
#include "data/store/source.h"
#include "data/store/tokenize.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::ByteTokenizer;
using testing::gzip;
using testing::TempFolder;
namespace fs = std::filesystem;
using Kinds = std::map<std::string, int>;

struct BadFile {
  std::string name, bytes;
  std::string source;  // data.source, with data.documents or data.format behind a colon
  uint64_t good;
  Kinds bad;
};

const std::string kGood = R"({"text":"good"})";
const std::string kChat =
    R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})";

std::string between(const std::string& line) { return kGood + "\n" + line + "\n" + kGood + "\n"; }
std::string chat_between(const std::string& line) { return kChat + "\n" + line + "\n" + kChat + "\n"; }
std::string nul(const char* text) {  // "0" stands for a NUL byte
  std::string bytes = text;
  for (char& c : bytes)
    if (c == '0') c = '\0';
  return bytes;
}

std::vector<BadFile> bad_corpus() {
  std::string utf16 = "\xff\xfe";
  for (const char c : kGood + "\n") utf16 += std::string{c, '\0'};
  std::string deep = "{\"text\":\"deep\",\"x\":";
  deep += std::string(3000, '[') + std::string(3000, ']') + "}";
  std::string many;
  for (int i = 0; i < 500; ++i) many += i % 2 ? kGood + "\n" : "{oops\n";
  const std::string spread = "{\n  \"text\": \"a } {\",\n  \"more\": [\n    {}\n  ]\n}\n";
  const std::string packed = gzip(between(kGood));
  return {
      {"empty file", "", "jsonl", 0, {}},
      {"only line ends", "\n\r\n\n", "jsonl", 0, {}},
      {"byte order mark", "\xef\xbb\xbf" + between(kGood), "jsonl", 3, {}},
      {"CRLF", kGood + "\r\n" + kGood + "\r\n", "jsonl", 2, {}},
      {"CR alone", kGood + "\r" + kGood + "\n" + kGood, "jsonl", 1, {{"malformed_json", 1}}},
      {"no line end at the end", kGood + "\n" + kGood, "jsonl", 2, {}},
      {"cut off in the middle of a record",
       kGood + "\n" + R"({"text":"ha)",
       "jsonl",
       1,
       {{"malformed_json", 1}}},
      {"words", between("not json at all"), "jsonl", 2, {{"malformed_json", 1}}},
      {"open brace", between("{"), "jsonl", 2, {{"malformed_json", 1}}},
      {"trailing comma", between(R"({"text":"a",})"), "jsonl", 2, {{"malformed_json", 1}}},
      {"single quotes", between("{'text':'a'}"), "jsonl", 2, {{"malformed_json", 1}}},
      {"Python's None", between(R"({"text":None})"), "jsonl", 2, {{"malformed_json", 1}}},
      {"NaN", between(R"({"text":"a","x":NaN})"), "jsonl", 2, {{"malformed_json", 1}}},
      {"two records on a line", between(kGood + kGood), "jsonl", 2, {{"malformed_json", 1}}},
      {"a record over two lines", between("{\"text\":\n\"a\"}"), "jsonl", 2, {{"malformed_json", 2}}},
      {"raw tab in a string", between("{\"text\":\"a\tb\"}"), "jsonl", 2, {{"malformed_json", 1}}},
      {"raw NUL in a string", between(nul("{\"text\":\"a0b\"}")), "jsonl", 2, {{"malformed_json", 1}}},
      {"lone surrogate", between(R"({"text":"\ud800"})"), "jsonl", 2, {{"malformed_json", 1}}},
      {"nested 3,000 deep", between(deep), "jsonl", 2, {{"malformed_json", 1}}},
      {"a number beyond all types", between(R"({"id":1e999999,"text":"good"})"), "jsonl", 3, {}},
      {"Latin-1", between("{\"text\":\"caf\xe9\"}"), "jsonl", 2, {{"invalid_utf8", 1}}},
      {"overlong UTF-8", between("{\"text\":\"\xc0\xaf\"}"), "jsonl", 2, {{"invalid_utf8", 1}}},
      {"surrogates in UTF-8", between("{\"text\":\"\xed\xa0\x80\"}"), "jsonl", 2, {{"invalid_utf8", 1}}},
      {"UTF-16", utf16, "jsonl", 0, {{"invalid_utf8", 1}, {"malformed_json", 1}}},
      {"a list in the place of a record", between("[1,2]"), "jsonl", 2, {{"wrong_type", 1}}},
      {"a number as the text", between(R"({"text":5})"), "jsonl", 2, {{"wrong_type", 1}}},
      {"null as the text", between(R"({"text":null})"), "jsonl", 2, {{"wrong_type", 1}}},
      {"another field", between(R"({"body":"a"})"), "jsonl", 2, {{"missing_field", 1}}},
      {"no field", between("{}"), "jsonl", 2, {{"missing_field", 1}}},
      {"an empty text", between(R"({"text":""})"), "jsonl", 2, {{"empty", 1}}},
      {"a line that is too long",
       between("{\"text\":\"" + std::string(200000, 'x') + "\"}"),
       "jsonl",
       2,
       {{"too_long", 1}}},
      {"every second record bad", many, "jsonl", 250, {{"malformed_json", 250}}},
      {"no assistant",
       chat_between(R"({"messages":[{"role":"user","content":"q"}]})"),
       "jsonl:chat",
       2,
       {{"no_assistant", 1}}},
      {"no turns", chat_between(R"({"messages":[]})"), "jsonl:chat", 2, {{"empty", 1}}},
      {"unknown role",
       chat_between(R"({"messages":[{"role":"dog","content":"q"}]})"),
       "jsonl:chat",
       2,
       {{"unknown_role", 1}}},
      {"content is a number",
       chat_between(R"({"messages":[{"role":"user","content":1}]})"),
       "jsonl:chat",
       2,
       {{"wrong_type", 1}}},
      {"message is a string", chat_between(R"({"messages":["q"]})"), "jsonl:chat", 2, {{"wrong_type", 1}}},
      {"messages is a string", chat_between(R"({"messages":"q"})"), "jsonl:chat", 2, {{"wrong_type", 1}}},
      {"no content",
       chat_between(R"({"messages":[{"role":"assistant"}]})"),
       "jsonl:chat",
       2,
       {{"missing_field", 1}}},
      {"text among conversations", chat_between(kGood), "jsonl:chat", 2, {{"missing_field", 1}}},
      {"gzip cut short", packed.substr(0, packed.size() - 9), "jsonl", 3, {{"broken_file", 1}}},
      {"gzip with a wrong checksum",
       packed.substr(0, packed.size() - 5) + std::string(5, '\xaa'),
       "jsonl",
       3,
       {{"broken_file", 1}}},
      {"garbage with gzip's first bytes", "\x1f\x8b garbage", "jsonl", 0, {{"broken_file", 1}}},
      {"garbage with zstd's first bytes", "\x28\xb5\x2f\xfd garbage, more", "jsonl", 0, {{"broken_file", 1}}},
      {"list without an end", "[" + kGood + "," + kGood, "jsonl", 2, {{"broken_file", 1}}},
      {"list with a bad element", "[" + kGood + ",{]," + kGood + "]", "jsonl", 2, {{"malformed_json", 1}}},
      {"objects over several lines", "\xef\xbb\xbf" + spread + spread + "\n" + spread, "jsonl", 3, {}},
      {"one object over several lines", spread, "jsonl", 1, {}},
      {"a bad object over several lines",
       spread + "{\n  \"text\": oops\n}\n" + spread,
       "jsonl",
       2,
       {{"malformed_json", 1}}},
      {"objects over several lines, cut off", spread + spread.substr(0, 8), "jsonl", 1, {{"broken_file", 1}}},
      {"an open brace before lines", "{\n" + kGood + "\n" + kGood, "jsonl", 2, {{"malformed_json", 1}}},
      {"text: blank documents", "one\n\n \t \n\n\n\ntwo\n", "text:blank_line", 2, {}},
      {"text: invalid UTF-8 in one document",
       "one\n\nt\xffwo\n\nthree",
       "text:blank_line",
       2,
       {{"invalid_utf8", 1}}},
      {"text: a NUL byte", nul("one\n\nt0o\n\nthree"), "text:blank_line", 2, {{"nul_byte", 1}}},
      {"text: CRLF between documents", "one\r\n\r\ntwo\r\n", "text:blank_line", 2, {}},
      {"text: too long a line is cut, not lost",
       "one\n" + std::string(100001, 'x') + "\ntwo\n",
       "text:line",
       4,
       {}},
      {"pairs: no tab", "a\tb\nab\na\tb\n", "pairs", 2, {{"unpaired", 1}}},
      {"pairs: one side empty", "a\tb\na\t\n\tb\na\tb\n", "pairs", 2, {{"empty", 2}}},
      {"pairs: invalid UTF-8", "a\tb\na\xff\tb\na\tb\n", "pairs", 2, {{"invalid_utf8", 1}}},
  };
}

TEST(BadFiles, ExactCountsAndNoGoodRecordLost) {
  const auto files = bad_corpus();
  EXPECT_GE(files.size(), 40u);
  const ByteTokenizer tokenizer({"<|im_start|>", "<|im_end|>"});
  for (const BadFile& file : files) {
    TempFolder folder;
    std::ofstream(folder / "bad", std::ios::binary) << file.bytes;
    // A good file behind it, so that nothing said about the bad one can end the reading.
    DataConfig config;
    const size_t colon = file.source.find(':');
    config.source = choice_named<DataSource>(file.source.substr(0, colon)).value();
    if (colon != std::string::npos) {
      const std::string how = file.source.substr(colon + 1);
      if (config.source == DataSource::kText)
        config.documents = choice_named<DocumentEnd>(how).value();
      else
        config.format = choice_named<RecordFormat>(how).value();
    }
    std::ofstream(folder / "good") << (config.source == DataSource::kText     ? "fine\n"
                                       : config.source == DataSource::kPairs  ? "fine\tgut\n"
                                       : config.format == RecordFormat::kChat ? kChat + "\n"
                                                                              : kGood + "\n");
    config.train = {(folder / "bad").string()};
    config.train.push_back((folder / "good").string());
    config.max_record_bytes = 100000, config.on_bad_record = OnBadRecord::kSkip;
    config.holdout = 0;
    Dataset dataset;
    try {
      dataset = load_dataset(config, {}, tokenizer);
    } catch (const Error& error) {
      ADD_FAILURE() << file.name << ": " << error.what();
      continue;
    }
    const uint64_t documents = dataset.train->size() / (config.source == DataSource::kPairs ? 2 : 1);
    EXPECT_EQ(documents - (config.train.size() - 1), file.good) << file.name;
    Kinds found;
    for (int kind = 1; kind < static_cast<int>(BadKind::kCount); ++kind)
      if (const auto count = dataset.bad.count(static_cast<BadKind>(kind)))
        found[std::string(bad_kind_name(static_cast<BadKind>(kind)))] = static_cast<int>(count);
    EXPECT_EQ(found, file.bad) << file.name << "\n" << dataset.bad.report();
    EXPECT_EQ(dataset.bad.first_ones().empty(), dataset.bad.total() == 0);
    if (file.bad.empty()) continue;
    config.on_bad_record = OnBadRecord::kFail;
    const auto message = testing::error_of(ExitCode::kData, [&] { load_dataset(config, {}, tokenizer); });
    EXPECT_NE(message.find("bad:"), std::string::npos) << message;
  }
}

TEST(BadFiles, EveryJsonFileIsReadByItsOwnShape) {
  TempFolder folder;
  std::ofstream(folder / "list.json") << "[\n" << kGood << ",\n" << kGood << "]\n";
  std::ofstream(folder / "lines.jsonl") << kGood << "\n" << kGood << "\n{oops\n" << kGood << "\n";
  std::ofstream(folder / "objects.json") << "{\n  \"text\": \"good\"\n}\n{\n  \"text\": \"good\"\n}\n";
  DataConfig config;
  config.source = DataSource::kJsonl, config.holdout = 0;
  for (const char* files : {"list.json lines.jsonl objects.json", "objects.json lines.jsonl list.json",
                            "lines.jsonl list.json objects.json"})
    for (const auto how : {TokenizeWhen::kStart, TokenizeWhen::kLive}) {
      config.train.clear(), config.tokenize = how;
      std::istringstream names(files);
      for (std::string name; names >> name;) config.train.push_back((folder / name).string());
      const ByteTokenizer tokenizer;
      const Dataset dataset = load_dataset(config, {}, tokenizer);
      EXPECT_EQ(dataset.train->size(), 7u) << files;
      ASSERT_EQ(dataset.bad.first_ones().size(), 1u) << files << dataset.bad.report();
      EXPECT_NE(dataset.bad.first_ones()[0].find("lines.jsonl:3"), std::string::npos) << dataset.bad.report();
      std::vector<int32_t> all(dataset.train->tokens());
      dataset.train->read(0, all.size(), all.data());
      EXPECT_EQ(all.size(), 7 * 5u) << files;
    }
}

// What is not read of a file counts by its bytes.
TEST(BadFiles, OneThatIsLostForTheMostPartStopsTheRun) {
  TempFolder folder;
  std::string lines, noise;
  for (int i = 0; i < 3000; ++i) {
    lines += R"({"text":"line )" + std::to_string(i * 7919 % 100003) + "\"}\n";
    noise += static_cast<char>('a' + i * i % 23);
  }
  std::string damaged = gzip(lines);
  for (size_t i = 1000; i < 1100; ++i) damaged[i] = '\xff';
  const std::map<std::string, std::string> files{
      {"damaged.gz", damaged},
      {"head.gz", "\x1f\x8b" + noise},
      {"list.json", "[" + kGood + "] " + noise},
      {"long.jsonl", kGood + "\n{\"text\":\"" + noise + noise + "\"}\n"},
      {"unended.json", "{\n\"text\": \"good\"\n}\n{\n\"text\": \"" + noise}};
  std::ofstream(folder / "good.jsonl") << lines.substr(0, lines.find('\n', 10000) + 1);
  for (const auto& [name, bytes] : files) {
    std::ofstream(folder / name, std::ios::binary) << bytes;
    DataConfig config;
    config.source = DataSource::kJsonl, config.holdout = 0, config.max_record_bytes = 5000;
    config.train = {(folder / "good.jsonl").string(), (folder / name).string()};
    const auto message =
        testing::error_of(ExitCode::kData, [&] { load_dataset(config, {}, ByteTokenizer()); });
    EXPECT_NE(message.find("% of the bytes, cannot be used"), std::string::npos) << name << message;
    EXPECT_NE(message.find(name), std::string::npos) << name << message;
    config.on_bad_record = OnBadRecord::kSkip;
    EXPECT_EQ(load_dataset(config, {}, ByteTokenizer()).bad.total(), 1u) << name;
  }
  // One that was cut near its end is as good as whole.
  const std::string whole = gzip(lines);
  std::ofstream(folder / "cut.gz", std::ios::binary) << whole.substr(0, whole.size() - 9);
  DataConfig config;
  config.source = DataSource::kJsonl, config.holdout = 0;
  config.train = {(folder / "cut.gz").string()};
  EXPECT_EQ(load_dataset(config, {}, ByteTokenizer()).bad.total(), 1u);
}

TEST(BadFiles, TheFirstTenAreNamedWithFileLineAndByte) {
  TempFolder folder;
  std::ofstream(folder / "a.jsonl") << kGood << "\n\n{oops\n" << kGood << "\n[]\n";
  DataConfig config;
  config.source = DataSource::kJsonl, config.holdout = 0;
  config.train = {(folder / "a.jsonl").string()};
  const ByteTokenizer tokenizer;
      const Dataset dataset = load_dataset(config, {}, tokenizer);
  ASSERT_EQ(dataset.bad.first_ones().size(), 2u);
  EXPECT_NE(dataset.bad.first_ones()[0].find("a.jsonl:3 (byte 17): malformed_json"), std::string::npos);
  EXPECT_NE(dataset.bad.first_ones()[1].find("a.jsonl:5 (byte 39): wrong_type"), std::string::npos);
}

TEST(BadFiles, OneReasonIsNamedThreeTimes) {
  BadRecords bad, other;
  for (int i = 1; i <= 5; ++i) bad.add(BadKind::kMissingField, "a.jsonl", i, 10 * i, "no field 'text'");
  bad.add(BadKind::kMissingField, "a.jsonl", 9, 90, "no field 'answer'");
  other.add(BadKind::kMissingField, "b.jsonl", 1, 0, "no field 'text'");
  bad.merge(other);
  ASSERT_EQ(bad.first_ones().size(), 4u) << bad.report();
  EXPECT_NE(bad.first_ones()[3].find("a.jsonl:9"), std::string::npos);
  EXPECT_NE(bad.report().find("and 3 more"), std::string::npos) << bad.report();
}

int64_t peak_megabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmHWM:") {
      int64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes / 1024;
    }
  return 0;
}

struct Counted {
  uint64_t records = 0, tokens = 0;
  BadRecords bad;
};

Counted count(const DataConfig& config) {
  Counted counted;
  const ByteTokenizer tokenizer;
  const TasksConfig tasks;
  const ChatConfig chat;
  const auto renderer = make_renderer({config, tasks, chat, tokenizer});
  tokenize(*open_records(config, tasks, false), *renderer, {2, 128}, counted.bad,
           [&](const Record& record, const Rendered& out) {
             counted.records += record.last;
             counted.tokens += out.ids.size();
             return true;
           });
  return counted;
}

TEST(BadFiles, AGigabyteLineTakesNoMemory) {
  TempFolder folder;
  {
    std::ofstream file(folder / "huge.jsonl", std::ios::binary);
    file << kGood << "\n";
    file.seekp((int64_t{1} << 30) + 1000);  // a hole: a gigabyte of NUL without a line end
    file << "\n" << kGood << "\n";
  }
  {
    std::ofstream file(folder / "long.txt", std::ios::binary);
    const std::string block(1 << 20, 'x');
    for (int i = 0; i < 80; ++i) file << block;
    file << "\nshort\n";
  }
  std::ofstream("/proc/self/clear_refs") << 5;  // forget the peak of the tests before
  const int64_t before = peak_megabytes();
  DataConfig config;
  config.source = DataSource::kJsonl;
  config.train = {(folder / "huge.jsonl").string()};
  Counted counted = count(config);
  EXPECT_EQ(counted.records, 2u);
  EXPECT_EQ(counted.bad.count(BadKind::kTooLong), 1u);
  config.source = DataSource::kText, config.documents = DocumentEnd::kLine;
  config.train = {(folder / "long.txt").string()};
  counted = count(config);
  EXPECT_EQ(counted.bad.total(), 0u);
  EXPECT_EQ(counted.records, 3u);  // 64 MiB, the rest, and the short one
  EXPECT_EQ(counted.tokens, (uint64_t{80} << 20) + 5 + 3);
  EXPECT_LT(peak_megabytes() - before, AllocationCount::available() ? 250 : 2500);
}

}  // namespace
}  // namespace tightloop
