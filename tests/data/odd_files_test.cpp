// FilesOfAll that are not what they seem: nothing of them is lost or learned without a word.
#include <fmt/ranges.h>

#include <fstream>

#include "data/batch/loader.h"
#include "data/batch/rows.h"
#include "data/byte_tokenizer.h"
#include "data/dataset.h"
#include "data/read/named_files.h"
#include "data/store/mixed_documents.h"
#include "data/store/prepare.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::ByteTokenizer;
using testing::error_of;
using testing::TempFolder;

struct FilesOfAll {
  TempFolder folder;
  ByteTokenizer tokenizer{{"<|im_start|>", "<|im_end|>"}};
  DataConfig data;
  explicit FilesOfAll(DataSource source) { data.source = source, data.holdout = 0; }
  void add(const std::string& name, const std::string& bytes) {
    std::ofstream(folder / name, std::ios::binary) << bytes;
    data.train.push_back((folder / name).string());
  }
  Dataset load() const { return load_dataset(data, {}, tokenizer); }
};

std::string utf16(const std::string& ascii, bool mark) {
  std::string bytes = mark ? "\xff\xfe" : "";
  for (const char c : ascii) (bytes += c) += '\0';
  return bytes;
}

std::string first_word(const Dataset& dataset) {
  return dataset.bad.first_ones().empty() ? "nothing" : dataset.bad.first_ones().front();
}

TEST(OddFiles, LinesAmongJsonListsAreNotDropped) {
  FilesOfAll it(DataSource::kJsonl);
  it.add("a.json", R"([{"text":"one"},{"text":"two"}])");
  it.add("b.jsonl", "{\"text\":\"three\"}\n{\"text\":\"four\"}\n");
  const Dataset dataset = it.load();
  EXPECT_EQ(dataset.train->size(), 4u);
  EXPECT_EQ(dataset.bad.total(), 0u);
}

TEST(OddFiles, WhatFollowsAJsonListIsNotDropped) {
  FilesOfAll it(DataSource::kJsonl);
  it.add("a.json", "\xef\xbb\xbf [{\"text\":\"one\"}]\n \n");
  EXPECT_EQ(it.load().bad.total(), 0u);
  it.add("b.json", "[{\"text\":\"one\"}]\n{\"text\":\"two\"}");
  EXPECT_EQ(it.load().bad.total(), 1u);
  EXPECT_EQ(it.load().train->size(), 2u);
}

TEST(OddFiles, Utf16IsNamed) {
  for (const bool mark : {true, false}) {
    FilesOfAll text(DataSource::kText), lines(DataSource::kJsonl), pairs(DataSource::kPairs);
    text.add("good.txt", "a good text"), text.add("a.txt", utf16("some text\n\nmore\n", mark));
    lines.add("good.jsonl", "{\"text\":\"a\"}\n"), lines.add("a.jsonl", utf16("{\"text\":\"a\"}\n", mark));
    pairs.add("good.tsv", "a\tb\n"), pairs.add("a.tsv", utf16("one\ttwo\n", mark));
    for (const FilesOfAll* it : {&text, &lines, &pairs}) {
      const Dataset dataset = it->load();
      EXPECT_EQ(dataset.train->size(), it == &pairs ? 2u : 1u) << "nothing of it is learned";
      EXPECT_NE(first_word(dataset).find("UTF-16"), std::string::npos) << first_word(dataset);
    }
  }
}

TEST(OddFiles, Latin1IsCountedByRecord) {
  FilesOfAll it(DataSource::kPairs);
  it.add("a.tsv", "a\tb\ncaf\xe9\tcoffee\nc\td\n");
  const Dataset dataset = it.load();
  EXPECT_EQ(dataset.train->size(), 4u);
  EXPECT_EQ(dataset.bad.count(BadKind::kInvalidUtf8), 1u);
}

TEST(OddFiles, BadRecordsAreToldAgainFromACache) {
  FilesOfAll it(DataSource::kJsonl);
  std::string text;
  for (int i = 0; i < 30; ++i) text += i % 3 ? "{\"text\":\"fine\"}\n" : "broken\n";
  it.add("a.jsonl", text);
  it.data.on_bad_record = OnBadRecord::kSkip;
  for (const auto when : {TokenizeWhen::kStart, TokenizeWhen::kLive}) {
    it.data.tokenize = when, it.data.cache = (it.folder / std::string(name_of(when))).string();
    const Dataset first = it.load(), again = it.load();
    EXPECT_EQ(first.bad.total(), 10u);
    EXPECT_EQ(again.bad.report(), first.bad.report()) << name_of(when);
  }
}

TEST(OddFiles, FilesThatAreEmptyOrNamedTwiceAreDoubted) {
  FilesOfAll it(DataSource::kText);
  it.add("a.txt", "some text");
  it.add("empty.txt", "");
  fs::create_symlink(it.folder / "a.txt", it.folder / "link.txt");
  it.data.train.push_back((it.folder / "link.txt").string());
  it.data.val = {(it.folder / "a.txt").string()};
  const auto doubts = doubts_about_files(it.data);
  ASSERT_EQ(doubts.size(), 3u) << fmt::format("{}", fmt::join(doubts, "\n"));
  EXPECT_TRUE(doubts[0].ends_with("empty.txt' is empty.")) << doubts[0];
  EXPECT_TRUE(doubts[1].ends_with("link.txt' is named twice in data.train: its documents come twice."))
      << doubts[1];
  EXPECT_TRUE(
      doubts[2].ends_with("a.txt' is named in data.train and in data.val: evaluation is on documents "
                          "that were learned."))
      << doubts[2];
  EXPECT_EQ(it.load().train->size(), 2u) << "doubts stop nothing";
  // Over the entries of a mixture as well.
  it.data.train.clear(), it.data.val.clear();
  const std::string a = (it.folder / "a.txt").string();
  it.data.mixture = {"name=x train=" + a, "name=y source=tasks", "name=z train=" + a};
  EXPECT_EQ(doubts_about_files(it.data),
            (std::vector<std::string>{"'" + a + "' is named in x.train and in z.train."}));
}

TEST(OddFiles, WhatPaddedRowsCutOffIsCounted) {
  auto store = std::make_shared<TokenStore>(300);
  for (const size_t length : {4u, 8u, 9u, 20u}) store->append(std::vector<int32_t>(length, 1), {});
  const auto rows = make_row_plan(RowKind::kPad, store, 8, 0, 0);
  EXPECT_EQ(rows->long_documents(), 2u);
  EXPECT_EQ(rows->cut_tokens(), 1u + 12u);
  EXPECT_EQ(make_row_plan(RowKind::kPack, store, 8, 0, 0)->cut_tokens(), 0u);
}

TEST(OddFiles, ABatchThatIsTooLargeIsRefused) {
  FilesOfAll it(DataSource::kText);
  it.add("a.txt", "some text that is long enough for a row or two of it");
  const Dataset dataset = it.load();
  LoaderOptions options;
  options.seq_len = 16;
  for (const int64_t rows : {int64_t{1} << 60, int64_t{1} << 31, INT64_MAX}) {
    options.rows = rows;
    error_of(ExitCode::kUsage, [&] { Loader(dataset.train, options); });
  }
}

TEST(OddFiles, WeightsThatAreTooFarApartAreRefused) {
  FilesOfAll it(DataSource::kText);
  std::ofstream(it.folder / "a.txt") << "a\n\nb\n\nc\n";
  std::ofstream(it.folder / "b.txt") << "d\n";
  it.data.mixture = {"name=a train=" + (it.folder / "a.txt").string() + " weight=0.000001",
                     "name=b train=" + (it.folder / "b.txt").string() + " weight=1000000"};
  const auto message = error_of(ExitCode::kUsage, [&] { it.load(); });
  EXPECT_NE(message.find("'b'"), std::string::npos) << message;
  for (const char* bad : {"weight=nan", "weight=-1", "weight=inf", "epochs=-1", "cap=-1"}) {
    it.data.mixture = {"name=a train=" + (it.folder / "a.txt").string() + " " + bad};
    error_of(ExitCode::kUsage, [&] { it.load(); });
  }
}

}  // namespace
}  // namespace tightloop
