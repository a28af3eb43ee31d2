#include "data/read/encoding.h"

#include <fmt/format.h>
#include <iconv.h>
#include <simdjson.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/terminal/terminal.h"
#include "data/read/byte_stream.h"

namespace tightloop {

namespace {

constexpr size_t kSampleBytes = 1 << 18;
constexpr size_t kSamples = 256;  // of a file

uint8_t byte_at(std::string_view bytes, size_t i) { return static_cast<uint8_t>(bytes[i]); }
bool within(uint32_t value, uint32_t low, uint32_t high) { return low <= value && value <= high; }

/// Files that hold no text, by their first bytes.
LikelyEncoding container(std::string_view bytes) {
  struct Known {
    std::string_view magic, name, advice;
  };
  using namespace std::string_view_literals;
  static constexpr std::array<Known, 12> kKnown{{
      {"PK\x03\x04"sv, "a ZIP archive (.docx, .xlsx and .epub are such too)",
       "Unpack it, or save the document as plain text in UTF-8"},
      {"%PDF-"sv, "a PDF", "Extract its text: pdftotext -enc UTF-8 {0} {1}"},
      {"PAR1"sv, "a Parquet file", "Read it with --data.source parquet"},
      {"\xd0\xcf\x11\xe0"sv, "an old Office document", "Save the document as plain text in UTF-8"},
      {"BZh"sv, "compressed by bzip2", "Unpack it: bunzip2 -c {0} > {1}"},
      {"\xfd"
       "7zXZ"sv,
       "compressed by xz", "Unpack it: xz -dc {0} > {1}"},
      {"7z\xbc\xaf"sv, "a 7z archive", "Unpack it"},
      {"Rar!"sv, "a RAR archive", "Unpack it"},
      {"SQLite format"sv, "an SQLite database", "Export its text as JSONL"},
      {"\x89PNG"sv, "an image", "Name files with text in them"},
      {"\xff\xd8\xff"sv, "an image", "Name files with text in them"},
      {"\x7f"
       "ELF"sv,
       "a program", "Name files with text in them"},
  }};
  for (const Known& known : kKnown)
    if (bytes.starts_with(known.magic)) return {std::string(known.name), "", std::string(known.advice)};
  if (bytes.size() > 262 && bytes.substr(257, 5) == "ustar")
    return {"a tar archive", "", "Unpack it: tar -xf {0}"};
  return {};
}

/// The share of 16-bit units that are letters, digits and marks of scripts in wide use.
double utf16_share(std::string_view bytes, bool big) {
  size_t good = 0, all = 0;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2, ++all) {
    const uint32_t first = byte_at(bytes, i), second = byte_at(bytes, i + 1);
    const uint32_t unit = big ? first << 8 | second : second << 8 | first;
    good += unit == '\t' || unit == '\n' || unit == '\r' || within(unit, 0x20, 0x7e) ||
            within(unit, 0xa0, 0x52f) || within(unit, 0x5d0, 0x6ff) || within(unit, 0x900, 0xdff) ||
            within(unit, 0xe00, 0xe7f) || within(unit, 0x2010, 0x203b) || within(unit, 0x3000, 0x30ff) ||
            within(unit, 0x4e00, 0x9fff) || within(unit, 0xac00, 0xd7a3) || within(unit, 0xff00, 0xffef);
  }
  return all == 0 ? 0 : static_cast<double>(good) / static_cast<double>(all);
}

/// Bytes above 127 as characters of two bytes: what they would be in the encodings of East Asia.
struct TwoBytes {
  size_t chars = 0, broken = 0;          // pairs with a good second byte, and first bytes without one
  size_t low_second = 0;                 // second bytes below 0x80
  size_t hanzi = 0, hangul = 0;          // of GB2312's common rows; of EUC-KR's rows of Hangul
  size_t kana = 0, japanese_broken = 0;  // of Shift-JIS
};

TwoBytes count_two_bytes(std::string_view bytes) {
  TwoBytes found;
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    const uint8_t first = byte_at(bytes, i), second = byte_at(bytes, i + 1);
    if (first < 0x80) continue;
    if (first == 0x80 || first == 0xff || second < 0x40 || second == 0x7f || second == 0xff) {
      ++found.broken;
      continue;
    }
    ++found.chars, ++i;
    found.low_second += second < 0x80;
    found.hanzi += (within(first, 0xb0, 0xd7) || within(first, 0xa1, 0xa3)) && second >= 0xa1;
    found.hangul += within(first, 0xb0, 0xc8) && second >= 0xa1;
  }
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    const uint8_t first = byte_at(bytes, i), second = byte_at(bytes, i + 1);
    if (first < 0x80 || within(first, 0xa1, 0xdf)) continue;  // a half-width kana is one byte
    if (!(within(first, 0x81, 0x9f) || within(first, 0xe0, 0xfc)) || second < 0x40 || second == 0x7f) {
      ++found.japanese_broken;
      continue;
    }
    found.kana += within(first, 0x81, 0x83);
    ++i;
  }
  return found;
}

/// The share of bytes above 127 that belong to whole UTF-8 characters.
double utf8_share(std::string_view bytes) {
  size_t high = 0, good = 0;
  for (size_t i = 0; i < bytes.size();) {
    const uint8_t first = byte_at(bytes, i);
    const size_t length = first < 0x80                ? 1
                          : within(first, 0xc2, 0xdf) ? 2
                          : within(first, 0xe0, 0xef) ? 3
                                                      : 4;
    const bool whole = (first < 0x80 || within(first, 0xc2, 0xf4)) && i + length <= bytes.size() &&
                       simdjson::validate_utf8(bytes.data() + i, length);
    const size_t taken = whole ? length : 1;
    if (first >= 0x80) high += taken, good += whole ? taken : 0;
    i += taken;
  }
  return high == 0 ? 1 : static_cast<double>(good) / static_cast<double>(high);
}

bool is_letter(uint8_t byte) { return within(byte | 0x20, 'a', 'z') || byte >= 0xc0; }

/// In Windows-1250 a letter, of Polish, Czech, Slovak or a language of the Balkans, and in Windows-1252 one
/// that is rare within words, or none.
bool is_central_european(uint8_t byte) {
  return std::string_view("\x8a\x8d\x8e\x8f\x9a\x9d\x9e\x9f\xa3\xa5\xaf\xb3\xb9\xbe\xbf")
             .find(static_cast<char>(byte)) != std::string_view::npos;
}

LikelyEncoding eight_bits(std::string_view bytes) {
  if (utf8_share(bytes) > 0.8)
    return {"UTF-8 with broken characters", "", "Leave those out: iconv -c -f UTF-8 -t UTF-8 {0} > {1}"};
  size_t high = 0, alone = 0, low_control = 0, cyrillic = 0, first_half = 0, central = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint8_t byte = byte_at(bytes, i);
    low_control += byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r' && byte != '\f';
    if (byte < 0x80) continue;
    ++high;
    cyrillic += byte >= 0xc0;
    first_half += within(byte, 0xc0, 0xdf);
    central += i > 0 && i + 1 < bytes.size() && is_central_european(byte) &&
               is_letter(byte_at(bytes, i - 1)) && is_letter(byte_at(bytes, i + 1));
    alone +=
        (i == 0 || byte_at(bytes, i - 1) < 0x80) && (i + 1 == bytes.size() || byte_at(bytes, i + 1) < 0x80);
  }
  if (low_control * 20 > bytes.size()) return {"binary data", "", "Name files with text in them"};
  if (alone * 10 >= high * 6 && central * 20 >= high) return {"Windows-1250", "WINDOWS-1250", ""};
  if (alone * 10 >= high * 6) return {"Latin-1 (Windows-1252)", "WINDOWS-1252", ""};
  const TwoBytes two = count_two_bytes(bytes);
  if (two.japanese_broken * 50 <= high && two.kana * 4 >= two.chars && two.kana > 0)
    return {"Shift-JIS", "CP932", ""};
  if (two.broken * 50 <= high) {
    if (two.low_second * 5 > two.chars) return {"Big5", "CP950", ""};
    if (two.hangul * 10 >= two.chars * 9) return {"EUC-KR", "CP949", ""};
    return {"GBK (GB18030)", "GB18030", ""};
  }
  // Most letters are small ones, and KOI8-R has those first.
  if (cyrillic * 10 >= high * 8 && first_half * 2 > cyrillic) return {"KOI8-R", "KOI8-R", ""};
  if (cyrillic * 10 >= high * 8) return {"Windows-1251", "WINDOWS-1251", ""};
  return {"neither UTF-8 nor an encoding that is known here", "", "Save it as plain text in UTF-8"};
}

/// As that encoding reads it; empty where the system cannot tell.
std::string converted(std::string text, const std::string& encoding) {
  const iconv_t way = ::iconv_open("UTF-8", encoding.c_str());
  if (way == reinterpret_cast<iconv_t>(-1)) return {};
  std::string out(4 * text.size() + 4, 0);
  char *from = text.data(), *to = out.data();
  size_t left = text.size(), room = out.size();
  ::iconv(way, &from, &left, &to, &room);  // up to a character that is cut off
  ::iconv_close(way);
  out.resize(out.size() - room);
  return out;
}

/// What the guess makes of the first line with such bytes, for people to judge.
std::string sample_of(std::string_view bytes, const std::string& encoding) {
  constexpr size_t kMost = 60;
  if (encoding.empty() || encoding.starts_with("UTF-16")) return {};
  const auto high = std::ranges::find_if(bytes, [](char c) { return static_cast<uint8_t>(c) >= 0x80; });
  const auto at = static_cast<size_t>(high - bytes.begin());
  if (at == bytes.size()) return {};
  const size_t line = bytes.rfind('\n', at) == bytes.npos ? 0 : bytes.rfind('\n', at) + 1;
  // From the beginning of a word, for a character may have two bytes.
  const size_t space = bytes.rfind(' ', at);
  const size_t begin = at - line <= kMost || space == bytes.npos || space < line ? line : space + 1;
  const size_t end = std::min(bytes.find('\n', at), begin + 2 * kMost);
  const std::string text = converted(std::string(bytes.substr(begin, end - begin)), encoding);
  return text.empty() ? text : fmt::format(" It would read: \"{}\".", printable(text));
}

/// Without the parts of characters at both ends of a piece of a file.
std::string_view whole_characters(std::string_view bytes) {
  const auto inside = [](char c) { return (static_cast<uint8_t>(c) & 0xc0) == 0x80; };
  for (int i = 0; i < 3 && !bytes.empty() && inside(bytes.front()); ++i) bytes.remove_prefix(1);
  size_t end = bytes.size();
  for (int i = 0; i < 3 && end > 0 && inside(bytes[end - 1]); ++i) --end;
  if (end > 0 && byte_at(bytes, end - 1) >= 0xc0) {
    const uint8_t lead = byte_at(bytes, end - 1);
    const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (bytes.size() - (end - 1) < length) bytes = bytes.substr(0, end - 1);
  }
  return bytes;
}

bool is_text(std::string_view bytes, bool start, bool whole) {
  if (start && !container(bytes).name.empty()) return false;
  if (bytes.find('\0') != bytes.npos) return false;
  const std::string_view text = whole ? bytes : whole_characters(bytes);
  return simdjson::validate_utf8(text.data(), text.size());
}

}  // namespace

LikelyEncoding likely_encoding(std::string_view bytes, bool start) {
  if (is_text(bytes, start, true)) return {};
  if (start) {
    if (const LikelyEncoding known = container(bytes); !known.name.empty()) return known;
    if (bytes.starts_with("\xff\xfe")) return {"UTF-16 (little-endian)", "UTF-16", ""};
    if (bytes.starts_with("\xfe\xff")) return {"UTF-16 (big-endian)", "UTF-16", ""};
  }
  if (bytes.find('\0') != bytes.npos) {
    const double little = utf16_share(bytes, false), big = utf16_share(bytes, true);
    if (std::max(little, big) < 0.95) return {"binary data", "", "Name files with text in them"};
    if (little > big) return {"UTF-16 (little-endian, without a byte order mark)", "UTF-16LE", ""};
    return {"UTF-16 (big-endian, without a byte order mark)", "UTF-16BE", ""};
  }
  return eight_bits(bytes);
}

std::string conversion(const LikelyEncoding& likely, const fs::path& path) {
  const std::string from = shell_word(path.string());
  const std::string to = shell_word((path.parent_path() / (path.stem().string() + ".utf8.txt")).string());
  if (likely.iconv.empty()) return fmt::format(fmt::runtime(likely.advice), from, to);
  if (is_file(path) && is_compressed(path))
    return fmt::format("Unpack it, then convert it: iconv -f {} -t UTF-8 < UNPACKED > {}", likely.iconv, to);
  return fmt::format("Convert it: iconv -f {} -t UTF-8 {} > {}", likely.iconv, from, to);
}

std::string encoding_advice(const std::vector<fs::path>& paths) {
  for (const fs::path& path : paths) {
    try {
      const auto stream = open_stream(path);
      std::string bytes;
      for (size_t sample = 0; sample < kSamples; ++sample) {
        bytes.resize(kSampleBytes);
        size_t got = 0;
        for (size_t more;
             got < bytes.size() && (more = stream->read(bytes.data() + got, bytes.size() - got)) > 0;)
          got += more;
        const bool ended = got < bytes.size();
        bytes.resize(got);
        if (!is_text(bytes, sample == 0, sample == 0 && ended)) {
          // Characters of two bytes are cut anywhere: a line is whole.
          if (sample > 0 && bytes.find('\0') == bytes.npos) bytes.erase(0, bytes.find('\n') + 1);
          const LikelyEncoding likely = likely_encoding(bytes, sample == 0);
          if (likely.name.empty()) break;
          return fmt::format("'{}' is not UTF-8 text: it looks like {}.{} {}", path.string(), likely.name,
                             sample_of(bytes, likely.iconv), conversion(likely, path));
        }
        if (ended) break;
      }
    } catch (const Error&) {  // what cannot be read has its own message
    }
  }
  return {};
}

}  // namespace tightloop
