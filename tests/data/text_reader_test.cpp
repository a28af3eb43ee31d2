#include "data/read/text_reader.h"

#include <zstd.h>

#include <fstream>

#include "core/random.h"
#include "data/gzip.h"
#include "data/read/line_reader.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::gzip;

using testing::TempFolder;
using Texts = std::vector<std::string>;

// Documents, their pieces joined; bad records as "!kind".
Texts read_texts(RecordReader& reader, size_t records = 3, std::vector<Record>* places = nullptr) {
  Texts texts;
  RecordBatch batch;
  bool open = false;
  while (reader.read(batch, records, 1 << 20)) {
    for (size_t i = 0; i < batch.size(); ++i) {
      const Record record = batch[i];
      if (record.bad != BadKind::kNone) {
        texts.push_back("!" + std::string(bad_kind_name(record.bad)));
        continue;
      }
      EXPECT_EQ(record.first, !open);
      if (record.first) {
        texts.emplace_back();
        if (places) places->push_back(record);
      }
      texts.back() += record.bytes;
      open = !record.last;
    }
    batch.clear();
  }
  EXPECT_FALSE(open);
  return texts;
}

Texts documents(const std::string& text, DocumentEnd kind, uint64_t piece = 1 << 20,
                uint64_t max_document = 1 << 26) {
  TempFolder folder;
  testing::write_file(folder / "a", text);
  TextReader reader({folder / "a"}, {kind, "<>", max_document, piece});
  return read_texts(reader);
}

bool blank(const std::string& text) { return text.find_first_not_of(" \t\r\n\v\f") == std::string::npos; }

// The same, line by line and with everything in memory.
Texts slow_documents(const std::string& text, const std::string& kind) {
  Texts found, lines(1);
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  const auto strip = [](std::string s) {
    while (s.ends_with('\r') || s.ends_with('\n')) s.pop_back();
    return s;
  };
  if (kind == "line") {
    for (const auto& line : lines)
      if (!blank(line)) found.push_back(strip(line));
  } else if (kind == "blank_line") {
    std::string document;
    lines.emplace_back();
    for (const auto& line : lines) {
      if (!blank(line)) {
        document += line + "\n";
      } else if (!document.empty()) {
        found.push_back(strip(document));
        document.clear();
      }
    }
  } else if (kind == "separator") {
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find("<>", begin), text.size());
      if (!blank(text.substr(begin, end - begin))) found.push_back(text.substr(begin, end - begin));
      begin = end + 2;
    }
  } else if (!blank(text)) {
    found.push_back(text);
  }
  return found;
}

TEST(TextReader, Kinds) {
  EXPECT_EQ(documents("a\nb\n\nc\n", DocumentEnd::kFile), (Texts{"a\nb\n\nc\n"}));
  EXPECT_EQ(documents("a\nb\n\nc\r\n\n", DocumentEnd::kLine), (Texts{"a", "b", "c"}));
  EXPECT_EQ(documents("a\nb\n \t\n\nc\r\nd\r\n\r\ne", DocumentEnd::kBlankLine),
            (Texts{"a\nb", "c\r\nd", "e"}));
  EXPECT_EQ(documents("\n\n\n", DocumentEnd::kBlankLine), Texts{});
  EXPECT_EQ(documents("a<>b<><>\nc<>", DocumentEnd::kSeparator), (Texts{"a", "b", "\nc"}));
  EXPECT_EQ(documents("", DocumentEnd::kFile), Texts{});
  EXPECT_EQ(documents("\xef\xbb\xbfwith a mark", DocumentEnd::kFile), Texts{"with a mark"});
  testing::error_of(ExitCode::kUsage, [] { TextReader({}, {DocumentEnd::kSeparator, ""}); });
}

TEST(TextReader, AgreesWithTheSlowReference) {
  TempFolder folder;
  Random random(4);
  for (int round = 0; round < 40; ++round) {
    std::string text;
    for (uint64_t i = random.below(2000); i > 0; --i) text += "ab \n\n\r\t<>\xc3\xa9"[random.below(11)];
    testing::write_file(folder / "a", text);
    for (const auto& [kind, name, help] : kChoices<DocumentEnd>)
      for (const uint64_t piece : {16, 40, 1 << 20}) {
        TextReader reader({folder / "a"}, {kind, "<>", 1 << 26, piece});
        Texts got = read_texts(reader), wanted = slow_documents(text, std::string(name));
        if (piece < 100) {
          // Where a long document ends in white space, the reader may have let go of it before it saw that.
          for (Texts* texts : {&got, &wanted}) {
            for (auto& one : *texts)
              while (!one.empty() && blank(one.substr(one.size() - 1))) one.pop_back();
            std::erase(*texts, "");
          }
        }
        ASSERT_EQ(got, wanted) << kind << " " << piece << " " << ::testing::PrintToString(text);
      }
  }
}

TEST(TextReader, CutsLongDocumentsBetweenWordsAndLosesNothing) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "word" + std::to_string(i) + (i % 9 == 8 ? "\n" : " ");
  TempFolder folder;
  testing::write_file(folder / "a", text);
  TextReader reader({folder / "a"}, {DocumentEnd::kFile, "", 1 << 26, 512});
  RecordBatch batch;
  std::string joined;
  ASSERT_TRUE(reader.read(batch, 100000, 1 << 26));
  EXPECT_GT(batch.size(), 40u);
  for (size_t i = 0; i < batch.size(); ++i) {
    const std::string_view piece = batch[i].bytes;
    EXPECT_LE(piece.size(), 512u);
    EXPECT_TRUE(i == 0 || joined.ends_with('\n') || piece.starts_with(' '));
    joined += piece;
  }
  EXPECT_EQ(joined, text);
  // With a limit on documents they end there, and still nothing is lost.
  const Texts parts = documents(text, DocumentEnd::kFile, 512, 2000);
  EXPECT_GE(parts.size(), text.size() / 2000);
  joined.clear();
  for (const auto& part : parts) joined += part;
  EXPECT_EQ(joined, text);
}

TEST(TextReader, NeverCutsACharacterInTwo) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "\xe6\xbc\xa2\xf0\x9f\x98\x80";
  TempFolder folder;
  testing::write_file(folder / "a", text);
  for (const uint64_t piece : {16, 17, 18, 19, 20, 101}) {
    TextReader reader({folder / "a"}, {DocumentEnd::kFile, "", 1 << 26, piece});
    RecordBatch batch;
    ASSERT_TRUE(reader.read(batch, 100000, 1 << 26));
    for (size_t i = 0; i < batch.size(); ++i) {
      const std::string_view bytes = batch[i].bytes;
      EXPECT_TRUE(bytes.empty() || (static_cast<unsigned char>(bytes[0]) & 0xc0) != 0x80);
    }
  }
}

TEST(TextReader, KnowsWhereDocumentsAre) {
  TempFolder folder;
  testing::write_file(folder / "a", "one\ntwo\n\n\nthree\n");
  testing::write_file(folder / "b", "\nfour");
  TextReader reader({folder / "a", folder / "b"}, {DocumentEnd::kBlankLine, ""});
  std::vector<Record> places;
  EXPECT_EQ(read_texts(reader, 1, &places), (Texts{"one\ntwo", "three", "four"}));
  ASSERT_EQ(places.size(), 3u);
  EXPECT_EQ(places[1].line, 5u);
  EXPECT_EQ(places[1].byte, 10u);
  EXPECT_EQ(places[2].file, 1u);
  EXPECT_EQ(places[2].line, 2u);
}

std::string zstd_bytes(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), 0);
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::string many_lines(int count) {
  std::string text;
  Random random(8);
  for (int i = 0; i < count; ++i) text += "line " + std::to_string(random.next()) + "\n";
  return text;
}

TEST(Compression, GzipAndZstdReadLikePlainFiles) {
  TempFolder folder;
  const std::string text = many_lines(60000), more = many_lines(10);
  testing::write_file(folder / "plain", text + more);
  testing::write_file(folder / "gz",
                      gzip(text) + gzip("") + gzip(more) + std::string(100, '\0'));  // members, then padding
  testing::write_file(folder / "zst", zstd_bytes(text) + zstd_bytes(more));
  TextReader plain({folder / "plain"}, {DocumentEnd::kLine, ""});
  const Texts wanted = read_texts(plain, 1000);
  ASSERT_EQ(wanted.size(), 60010u);
  for (const char* name : {"gz", "zst"}) {
    TextReader reader({folder / name}, {DocumentEnd::kLine, ""});
    EXPECT_EQ(read_texts(reader, 1000), wanted) << name;
  }
  testing::write_file(folder / "tiny", gzip("x"));
  TextReader tiny({folder / "tiny"}, {DocumentEnd::kLine, ""});
  EXPECT_EQ(read_texts(tiny), Texts{"x"});
}

TEST(Compression, WhatComesBeforeTheDamageIsKept) {
  TempFolder folder;
  const std::string text = many_lines(60000);
  for (const bool use_gzip : {true, false}) {
    std::string bytes = use_gzip ? gzip(text) : zstd_bytes(text);
    testing::write_file(folder / "cut", bytes.substr(0, bytes.size() / 2));
    bytes[bytes.size() / 2] ^= 0x55;
    bytes[bytes.size() / 2 + 1] ^= 0x55;
    testing::write_file(folder / "flipped", bytes);
    testing::write_file(folder / "good", "good\n");
    for (const char* name : {"cut", "flipped"}) {
      LineRecords reader({folder / name, folder / "good"}, 1 << 20);
      const Texts got = read_texts(reader, 1000);
      ASSERT_GT(got.size(), 1000u) << name;
      EXPECT_EQ(got[0] + "\n", text.substr(0, got[0].size() + 1));
      EXPECT_EQ(got[got.size() - 2], "!broken_file") << name;
      EXPECT_EQ(got.back(), "good");
    }
  }
}

Texts lines_of(const std::string& text, uint64_t max_bytes = 1 << 20) {
  TempFolder folder;
  testing::write_file(folder / "a", text);
  LineRecords reader({folder / "a"}, max_bytes);
  return read_texts(reader);
}

TEST(LineRecords, Lines) {
  EXPECT_EQ(lines_of("a\nb\r\n\n \nc"), (Texts{"a", "b", "c"}));
  EXPECT_EQ(lines_of(""), Texts{});
  EXPECT_EQ(lines_of("\n\n"), Texts{});
  EXPECT_EQ(lines_of("\xef\xbb\xbf{}\n"), Texts{"{}"});
  EXPECT_EQ(lines_of("a\rb\n"), Texts{"a\rb"});
}

TEST(LineRecords, TooLongOnesArePassedOver) {
  const std::string longest(1000, 'x'), longer(1001, 'x'), huge(3 << 20, 'x');
  EXPECT_EQ(lines_of("a\n" + longest + "\nb", 1000), (Texts{"a", longest, "b"}));
  EXPECT_EQ(lines_of("a\n" + longest + "\r\nb", 1000), (Texts{"a", longest, "b"}));
  EXPECT_EQ(lines_of("a\n" + longer + "\nb", 1000), (Texts{"a", "!too_long", "b"}));
  EXPECT_EQ(lines_of("a\n" + huge + "\nb\n" + huge, 1000), (Texts{"a", "!too_long", "b", "!too_long"}));
  EXPECT_EQ(lines_of(huge, 1000), Texts{"!too_long"});
}

TEST(LineRecords, KnowsLinesAndBytes) {
  TempFolder folder;
  testing::write_file(folder / "a",
                      "\xef\xbb\xbf"
                      "one\r\n\n" +
                          std::string(2000, 'x') + "\nfour\n");
  LineReader lines(folder / "a", 1000);
  using Status = LineReader::Status;
  const std::vector<std::tuple<Status, uint64_t, uint64_t>> wanted{
      {Status::kLine, 1, 3}, {Status::kLine, 2, 8}, {Status::kTooLong, 3, 9}, {Status::kLine, 4, 2010}};
  for (const auto& [status, number, byte] : wanted) {
    EXPECT_EQ(lines.next(), status);
    EXPECT_EQ(lines.number(), number);
    EXPECT_EQ(lines.byte(), byte);
  }
  EXPECT_EQ(lines.next(), Status::kEnd);
}

// A share of the work that is honest for compressed files too.
TEST(RecordReader, CountsTheBytesOfFilesAsTheyAreOnDisk) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "line " + std::to_string(i) + (i % 5 ? "\n" : "\n\n");
  testing::write_file(folder / "plain", text);
  testing::write_file(folder / "packed", gzip(text));
  std::string frame(ZSTD_compressBound(text.size()), 0);
  frame.resize(ZSTD_compress(frame.data(), frame.size(), text.data(), text.size(), 1));
  testing::write_file(folder / "frame", frame);
  for (const char* name : {"plain", "packed", "frame"}) {
    const uint64_t bytes = fs::file_size(folder / name);
    TextReader texts({folder / name, folder / name}, {});
    LineRecords lines({folder / name, folder / name}, 1000);
    for (RecordReader* reader : {static_cast<RecordReader*>(&texts), static_cast<RecordReader*>(&lines)}) {
      EXPECT_EQ(reader->total_bytes(), 2 * bytes) << name;
      EXPECT_EQ(reader->bytes_read(), 0u) << name;
      RecordBatch batch;
      reader->read(batch, 1, 1);
      EXPECT_GT(reader->bytes_read(), 0u) << name;
      EXPECT_LE(reader->bytes_read(), bytes) << name;
      while (reader->read(batch, 1000, 1 << 20)) batch.clear();
      EXPECT_EQ(reader->bytes_read(), 2 * bytes) << name;
    }
  }
}

}  // namespace
}  // namespace tightloop
