#include <zstd.h>

#include <cstring>
#include <fstream>

#include "core/hash.h"
#include "core/plugin.h"
#include "core/random.h"
#include "data/batch/loader.h"
#include "data/batch/pairs.h"
#include "data/dataset.h"
#include "data/gzip.h"
#include "data/read/parquet.h"
#include "data/render/text_cuts.h"
#include "data/store/prepare.h"
#include "support.h"
#include "tokenizer/bpe_train.h"

namespace tightloop {
namespace {

using testing::gzip;
using testing::TempFolder;

std::string zstd(const std::string& text) {
  std::string packed(::ZSTD_compressBound(text.size()), '\0');
  packed.resize(::ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

/// Words, numbers, code, Chinese, line ends of all kinds and a special token here and there: places where
/// tokenizers cut, and places that only look like it.
std::string prose(Random& random, size_t bytes) {
  static const std::vector<std::string> kWords{
      "the", " cat",  " sat",  " on", " it",  "'s",     " 1234",  ".\n//", ";\n/*", "\n\n\n",        "  ",
      "\t",  "!\r\n", " a",    " b",  " don", "'t",     "。漢字", "，語",  "é",     "<|endoftext|>", "\n",
      " ",   " word", " more", ",",   " and", " token", "ize",    "r",     "\n- "};
  std::string text = "x";
  while (text.size() < bytes) text += kWords[random.below(kWords.size())];
  return text;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::shared_ptr<const Tokenizer> tokenizer_of(SplitPattern pattern) {
  BpeTrainOptions options;
  options.vocab_size = 600;
  options.pattern = pattern;
  options.threads = 1;
  options.special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  Random random(5);
  int left = 20;
  return train_bpe(options, [&](std::string& text) {
    text = prose(random, 2000);
    return left-- > 0;
  });
}

/// The three forms of one source.
struct Forms {
  TempFolder folder;
  std::shared_ptr<const Tokenizer> tokenizer = tokenizer_of(SplitPattern::kGpt2);
  DataConfig config;
  Dataset memory, live, shards;

  void load() {
    config.tokenizer_threads = 2, config.on_bad_record = OnBadRecord::kSkip;
    config.tokenize = TokenizeWhen::kStart;
    memory = load_dataset(config, {}, *tokenizer);
    prepare({config, {}, {}, *tokenizer}, {folder / "shards", 20000, {}});
    DataConfig prepared = config;
    prepared.source = DataSource::kShards;
    prepared.train = {(folder / "shards").string()};
    prepared.val.clear();
    shards = load_dataset(prepared, {}, *tokenizer);
    config.tokenize = TokenizeWhen::kLive;
    live = load_dataset(config, {}, *tokenizer, {}, nullptr, folder / "index");
  }
};

std::string bytes_of(const Batch& batch) {
  const size_t cells = batch.rows * batch.length;
  std::string all;
  const auto add = [&](const auto* data, size_t count) {
    all.append(reinterpret_cast<const char*>(data), count * sizeof *data);
  };
  add(batch.inputs, cells), add(batch.targets, cells), add(batch.loss_mask, cells);
  add(batch.bounds, batch.documents + 1), add(batch.sources, batch.rows);
  return all + std::to_string(batch.supervised) + " " + std::to_string(batch.padding);
}

std::vector<std::string> batches(const std::shared_ptr<const Documents>& documents, LoaderOptions options,
                                 int count) {
  Loader loader(documents, options);
  std::vector<std::string> all;
  while (static_cast<int>(all.size()) < count) all.push_back(bytes_of(loader.next()));
  return all;
}

void expect_same_documents(const Documents& a, const Documents& b) {
  ASSERT_EQ(a.size(), b.size());
  for (uint64_t i = 0; i <= a.size(); ++i) ASSERT_EQ(a.begin(i), b.begin(i));
  std::vector<int32_t> left(a.tokens()), right(left.size());
  std::vector<uint8_t> left_mask(left.size()), right_mask(left.size());
  a.read(0, left.size(), left.data()), b.read(0, right.size(), right.data());
  EXPECT_EQ(left, right);
  EXPECT_EQ(a.read_mask(0, left.size(), left_mask.data()), b.read_mask(0, left.size(), right_mask.data()));
  EXPECT_EQ(left_mask, right_mask);
}

void expect_same(const Forms& forms, int count = 6) {
  expect_same_documents(*forms.live.train, *forms.memory.train);
  expect_same_documents(*forms.live.val, *forms.memory.val);
  expect_same_documents(*forms.shards.train, *forms.memory.train);
  EXPECT_EQ(forms.live.bad.report(), forms.memory.bad.report());
  for (const auto rows : {RowKind::kStream, RowKind::kPad, RowKind::kPack}) {
    LoaderOptions options;
    options.rows_kind = rows;
    options.rows = 3, options.seq_len = 96, options.seed = 3;
    for (const auto& [rank, world] : {std::pair{0, 1}, {1, 3}}) {
      options.rank = rank, options.world = world;
      options.threads = 0;
      const auto wanted = batches(forms.memory.train, options, count);
      EXPECT_EQ(batches(forms.shards.train, options, count), wanted) << rows;
      for (const int threads : {1, 2, 8}) {
        options.threads = threads;
        EXPECT_EQ(batches(forms.live.train, options, count), wanted) << rows << " " << threads;
      }
    }
  }
}

enum class Packed { kNo, kGzip, kZstd };

class LiveText : public ::testing::TestWithParam<std::tuple<SplitPattern, DocumentEnd, Packed>> {};

TEST_P(LiveText, RowsAreThoseOfTheOtherForms) {
  const auto& [pattern, documents, packed] = GetParam();
  Forms forms;
  forms.tokenizer = tokenizer_of(pattern);
  Random random(hash64(name_of(documents)));
  for (int file = 0; file < 3; ++file) {
    std::string text = file == 1 ? "\xef\xbb\xbf" : "";
    for (int i = 0; i < 12; ++i) {
      text += prose(random, i == 5 ? 60000 : 20 + random.below(3000)) +
              (i % 2 ? "\n\n" : "<|endoftext|>\r\n\r\n");
      if (i == 7) text += "bad \xff bytes\n\n";
    }
    testing::write_file(forms.folder / ("a" + std::to_string(file)), packed == Packed::kGzip   ? gzip(text)
                                                                     : packed == Packed::kZstd ? zstd(text)
                                                                                               : text);
  }
  forms.config.documents = documents;
  forms.config.train = {(forms.folder / "a*").string()};
  forms.config.holdout = 0.2;
  forms.load();
  EXPECT_EQ(forms.live.bad.total() > 0, true);
  if (documents == DocumentEnd::kFile) return expect_same_documents(*forms.live.train, *forms.memory.train);
  expect_same(forms);
}

INSTANTIATE_TEST_SUITE_P(All, LiveText,
                         ::testing::Combine(::testing::Values(SplitPattern::kGpt2, SplitPattern::kO200k),
                                            ::testing::Values(DocumentEnd::kBlankLine, DocumentEnd::kLine,
                                                              DocumentEnd::kSeparator),
                                            ::testing::Values(Packed::kNo, Packed::kGzip, Packed::kZstd)));

TEST(Live, OneLongDocumentIsReadInParts) {
  Forms forms;
  Random random(1);
  testing::write_file(forms.folder / "a.txt", prose(random, 2'500'000));  // three pieces of the reader
  forms.config.documents = DocumentEnd::kFile;
  forms.config.train = {(forms.folder / "a.txt").string()};
  forms.config.holdout = 0;
  forms.load();
  ASSERT_EQ(forms.live.train->size(), 1u);
  uint64_t places = 0;
  for (const auto& entry : fs::recursive_directory_iterator(forms.folder / "index"))
    if (entry.path().filename() == "train.places") places = fs::file_size(entry.path()) / 16;
  EXPECT_GT(places, 400u);  // of 2.5 MB: a row costs parts of a few KB
  expect_same(forms, 2);
}

TEST(Live, TheMarkerOfLossesHolds) {
  Forms forms;
  Random random(2);
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += "2+" + std::to_string(i) + "=" + prose(random, i == 9 ? 30000 : 40) + "<|sep|>";
  testing::write_file(forms.folder / "a.txt", text);
  forms.config.documents = DocumentEnd::kSeparator, forms.config.separator = "<|sep|>";
  forms.config.loss_after = "=";
  forms.config.train = {(forms.folder / "a.txt").string()};
  forms.load();
  expect_same(forms);
}

class LiveJson : public ::testing::TestWithParam<std::tuple<std::string, Packed>> {};

TEST_P(LiveJson, RowsAreThoseOfTheOtherForms) {
  const auto& [form, packed] = GetParam();
  Forms forms;
  Random random(hash64(form));
  std::string text = form == "array" ? "[" : "";
  for (int i = 0; i < 150; ++i) {
    const std::string some = quoted(prose(random, i == 40 ? 90000 : random.below(600)));
    if (form == "chat") {
      text += R"({"messages":[{"role":"user","content":)" + some + R"(},{"role":"assistant","content":)" +
              quoted(prose(random, 100)) + "}]}";
    } else {
      text += R"({"id":)" + std::to_string(i) + R"(,"text":)" + some + "}";
    }
    text += form == "array" ? (i == 149 ? "]" : " ,\n ") : i % 3 ? "\n" : "\r\n";
    if (form != "array" && i % 50 == 7) text += "{\"text\":\n\n";
  }
  testing::write_file(forms.folder / "a.jsonl", packed == Packed::kGzip   ? gzip(text)
                                                : packed == Packed::kZstd ? zstd(text)
                                                                          : text);
  testing::write_file(forms.folder / "val.jsonl",
                      form == "array" ? "[{\"text\":\"ab\"}]" : "{\"text\":\"ab\"}\n");
  forms.config.source = DataSource::kJsonl;
  forms.config.train = {(forms.folder / "a.jsonl").string()};
  if (form != "chat") forms.config.val = {(forms.folder / "val.jsonl").string()};
  forms.load();
  expect_same(forms);
}

INSTANTIATE_TEST_SUITE_P(All, LiveJson,
                         ::testing::Combine(::testing::Values("text", "chat", "array"),
                                            ::testing::Values(Packed::kNo, Packed::kGzip, Packed::kZstd)));

std::vector<std::string> pair_batches(const std::shared_ptr<const Documents>& documents, int threads) {
  PairOptions options;
  options.batch_tokens = 512, options.threads = threads, options.seed = 4;
  PairLoader loader(documents, options);
  std::vector<std::string> all;
  for (int i = 0; i < 20; ++i) {
    const PairBatch& batch = loader.next();
    std::string bytes;
    const auto add = [&](const int32_t* data, int64_t count) {
      bytes.append(reinterpret_cast<const char*>(data), count * sizeof *data);
    };
    add(batch.source, batch.rows * batch.source_length), add(batch.inputs, batch.rows * batch.target_length);
    add(batch.targets, batch.rows * batch.target_length);
    all.push_back(bytes);
  }
  return all;
}

class LivePairs : public ::testing::TestWithParam<std::tuple<std::string, bool>> {};

TEST_P(LivePairs, BatchesAreThoseOfTheOtherForms) {
  const auto& [form, packed] = GetParam();
  Forms forms;
  Random random(9);
  std::string both, left, right;
  const auto line = [&] {
    std::string text = prose(random, 5 + random.below(150));
    for (char& c : text)
      if (c == '\n' || c == '\r' || c == '\t') c = '.';
    return text;
  };
  for (int i = 0; i < 300; ++i) {
    const std::string a = i % 40 == 3 ? " " : line(), b = line();
    both += form == "tsv" ? a + "\t" + b + (i % 2 ? "\tmore\r\n" : "\n")
                          : "[" + quoted(a) + "," + quoted(b) + "]\n";
    left += a + "\r\n", right += b + "\n";
  }
  const auto save = [&](const char* name, const std::string& text) {
    testing::write_file(forms.folder / name, packed ? gzip(text) : text);
    return std::vector{(forms.folder / name).string()};
  };
  forms.config.source = DataSource::kPairs;
  forms.config.train = save("a", form == "parallel" ? left : both);
  if (form == "parallel") forms.config.train_target = save("b", right);
  forms.load();
  EXPECT_EQ(forms.live.bad.total(), 8u);
  expect_same_documents(*forms.live.train, *forms.memory.train);
  expect_same_documents(*forms.shards.train, *forms.memory.train);
  const auto wanted = pair_batches(forms.memory.train, 0);
  for (const int threads : {1, 2, 8}) EXPECT_EQ(pair_batches(forms.live.train, threads), wanted);
}

INSTANTIATE_TEST_SUITE_P(All, LivePairs,
                         ::testing::Combine(::testing::Values("tsv", "json", "parallel"), ::testing::Bool()));

TEST(Live, ParquetIsKept) {
  SKIP_WITHOUT(testing::python());
  SKIP_WITHOUT(program_folder() / kParquetPlugin);
  Forms forms;
  ASSERT_EQ(testing::run_python("tests/data/make_parquet.py", forms.folder.path()), 0);
  forms.config.source = DataSource::kParquet;
  forms.config.train = {(forms.folder / "text.parquet").string()};
  forms.load();
  EXPECT_EQ(forms.live.train->size() + forms.live.val->size(), 5000u);
  expect_same(forms);
}

TEST(Live, TheIndexIsMadeOnceAndMadeAnewForOtherFiles) {
  Forms forms;
  testing::write_file(forms.folder / "a.jsonl", "{\"text\":\"one two\"}\nbad\n{\"text\":\"three\"}\n");
  forms.config.source = DataSource::kJsonl;
  forms.config.holdout = 0;
  forms.config.train = {(forms.folder / "a.jsonl").string()};
  forms.load();
  const auto indexes = [&] {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(forms.folder / "index")) count += fs::is_directory(entry);
    return count;
  };
  EXPECT_EQ(indexes(), 1u);
  const auto load = [&] {
    return load_dataset(forms.config, {}, *forms.tokenizer, {}, nullptr, forms.folder / "index");
  };
  const Dataset again = load();  // what was skipped is told again, though the files are not read
  EXPECT_EQ(again.bad.report(), forms.memory.bad.report());
  EXPECT_EQ(indexes(), 1u);
  testing::write_file(forms.folder / "a.jsonl",
                      "{\"text\":\"one two\"}\n{\"text\":\"three\"}\n{\"text\":\"four\"}\n");
  EXPECT_EQ(load().train->size(), 3u);
  EXPECT_EQ(indexes(), 2u);
}

TEST(Live, AFileThatChangesUnderTheRunIsAnError) {
  Forms forms;
  testing::write_file(forms.folder / "a.jsonl", "{\"text\":\"one two\"}\n{\"text\":\"three four five\"}\n");
  forms.config.source = DataSource::kJsonl;
  forms.config.holdout = 0;
  forms.config.train = {(forms.folder / "a.jsonl").string()};
  forms.load();
  const auto read = [&] {
    std::vector<int32_t> ids(forms.live.train->tokens());
    forms.live.train->read(0, ids.size(), ids.data());
  };
  testing::write_file(forms.folder / "a.jsonl", "{\"text\":\"one two\"}\n{\"text\":\"!!!!! ???? ,,,,\"}\n");
  EXPECT_NE(testing::error_of(ExitCode::kData, read).find("a.jsonl, byte 19"), std::string::npos);
  testing::write_file(forms.folder / "a.jsonl", "{\"text\"");
  EXPECT_NE(testing::error_of(ExitCode::kData, read).find("shorter"), std::string::npos);
}

TEST(Live, ADamagedIndexIsRefused) {
  Forms forms;
  testing::write_file(forms.folder / "a.jsonl", "{\"text\":\"one two\"}\n");
  forms.config.source = DataSource::kJsonl;
  forms.config.holdout = 0;
  forms.config.train = {(forms.folder / "a.jsonl").string()};
  forms.load();
  fs::path places;
  for (const auto& entry : fs::recursive_directory_iterator(forms.folder / "index"))
    if (entry.path().filename() == "train.places") places = entry.path();
  testing::write_file(places, std::string(16, '\1'));
  const auto message = testing::error_of(ExitCode::kData, [&] {
    load_dataset(forms.config, {}, *forms.tokenizer, {}, nullptr, forms.folder / "index");
  });
  EXPECT_NE(message.find("train.places"), std::string::npos) << message;
}

TEST(Live, ManyFilesThanCanBeOpenAtOnce) {
  Forms forms;
  for (int i = 0; i < 150; ++i)
    testing::write_file(forms.folder / ("f" + std::to_string(i)), "text " + std::to_string(i));
  forms.config.documents = DocumentEnd::kFile;
  forms.config.train = {(forms.folder / "f*").string()};
  forms.load();
  expect_same_documents(*forms.live.train, *forms.memory.train);
  expect_same_documents(*forms.live.train, *forms.memory.train);
}

TEST(TextCuts, PartsGiveTheTokensOfTheWhole) {
  Random random(7);
  for (const auto pattern : {SplitPattern::kGpt2, SplitPattern::kCl100k, SplitPattern::kO200k}) {
    const auto tokenizer = tokenizer_of(pattern);
    size_t found = 0;
    for (int i = 0; i < 60; ++i) {
      const std::string text = prose(random, 100 + random.below(3000));
      const auto ids = tokenizer->encode(text);
      const auto cuts = find_cuts(text, ids, *tokenizer, 64);
      found += cuts.size();
      std::vector<int32_t> parts;
      uint32_t byte = 0;
      for (const TextCut& cut : cuts) {
        tokenizer->encode(std::string_view(text).substr(byte, cut.byte - byte), parts);
        EXPECT_EQ(parts.size(), cut.token);
        byte = cut.byte;
      }
      tokenizer->encode(std::string_view(text).substr(byte), parts);
      EXPECT_EQ(parts, ids);
    }
    EXPECT_GT(found, 300u) << pattern;
  }
  const auto tokenizer = tokenizer_of(SplitPattern::kGpt2);
  const std::string run(5000, 'x');  // one word: nowhere to cut, and no harm done
  const auto ids = tokenizer->encode(run);
  for (const TextCut& cut : find_cuts(run, ids, *tokenizer, 64)) EXPECT_LT(cut.byte, run.size());
}

}  // namespace
}  // namespace tightloop
