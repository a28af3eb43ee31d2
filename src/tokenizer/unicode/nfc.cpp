#include "tokenizer/unicode/nfc.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tokenizer/unicode/unicode.h"

namespace tightloop {

namespace {

constexpr uint32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;
constexpr uint32_t kVowelCount = 21, kTailCount = 28, kSyllableCount = 11172, kLeadCount = 19;

struct Tables {
  std::unordered_map<uint32_t, CanonicalPair> parts;  // second 0: one part
  std::unordered_map<uint64_t, uint32_t> whole;       // first << 32 | second
  std::unordered_map<uint32_t, uint8_t> combining;    // not 0
  Tables() {
    const std::unordered_set<uint32_t> apart(kNotComposed.begin(), kNotComposed.end());
    for (const CanonicalPair& pair : kCanonicalPairs) {
      parts[pair.character] = pair;
      if (!apart.contains(pair.character)) whole[uint64_t{pair.first} << 32 | pair.second] = pair.character;
    }
    for (const CanonicalSingle& single : kCanonicalSingles)
      parts[single.character] = {single.character, single.other, 0};
    for (size_t i = 0; i + 1 < kCombiningRanges.size(); ++i)
      if (const auto kind = static_cast<uint8_t>(kCombiningRanges[i] & 255))
        for (uint32_t c = kCombiningRanges[i] >> 8; c < kCombiningRanges[i + 1] >> 8; ++c)
          combining[c] = kind;
  }
};

const Tables& tables() {
  static const Tables tables;
  return tables;
}

struct Point {
  uint32_t value;
  uint8_t combining;
};

uint8_t combining_of(uint32_t point) {
  const auto found = tables().combining.find(point);
  return found == tables().combining.end() ? 0 : found->second;
}

void decompose(uint32_t point, std::vector<Point>& out) {
  if (point - kSyllables < kSyllableCount) {
    const uint32_t index = point - kSyllables;
    out.push_back({kLeads + index / (kVowelCount * kTailCount), 0});
    out.push_back({kVowels + index / kTailCount % kVowelCount, 0});
    if (index % kTailCount) out.push_back({kTails + index % kTailCount, 0});
    return;
  }
  const auto found = tables().parts.find(point);
  if (found == tables().parts.end()) {
    out.push_back({point, combining_of(point)});
    return;
  }
  decompose(found->second.first, out);
  if (found->second.second) decompose(found->second.second, out);
}

uint32_t compose(uint32_t first, uint32_t second) {
  if (first - kLeads < kLeadCount && second - kVowels < kVowelCount)
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  if (first - kSyllables < kSyllableCount && (first - kSyllables) % kTailCount == 0 && second > kTails &&
      second < kTails + kTailCount)
    return first + (second - kTails);
  const auto found = tables().whole.find(uint64_t{first} << 32 | second);
  return found == tables().whole.end() ? 0 : found->second;
}

/// Orders and composes the points, which begin with a starter or at the beginning of the text, and appends
/// them.
void flush(std::vector<Point>& points, std::string& out) {
  for (auto run = points.begin(); run != points.end();) {
    if (run->combining == 0) {
      ++run;
      continue;
    }
    const auto end = std::find_if(run, points.end(), [](const Point& p) { return p.combining == 0; });
    std::stable_sort(run, end, [](const Point& a, const Point& b) { return a.combining < b.combining; });
    run = end;
  }
  size_t kept = 0, starter = SIZE_MAX;
  uint8_t last = 0;
  for (const Point point : points) {
    if (starter != SIZE_MAX && (kept == starter + 1 || (last != 0 && last < point.combining))) {
      if (const uint32_t whole = compose(points[starter].value, point.value)) {
        points[starter].value = whole;
        continue;
      }
    }
    if (point.combining == 0) starter = kept;
    last = point.combining;
    points[kept++] = point;
  }
  for (size_t i = 0; i < kept; ++i) append_utf8(out, points[i].value);
  points.clear();
}

}  // namespace

bool surely_nfc(std::string_view text) {
  // Nothing below U+0300 (first bytes up to 0xCB) changes; neither do CJK ideographs (U+4000 to U+9FFF), nor
  // what stands in U+2000 to U+206F except for U+2000 and U+2001.
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < 0xCC) continue;
    if (byte >= 0xE4 && byte <= 0xE9) continue;
    if (byte == 0xE2 && i + 2 < text.size() && static_cast<uint8_t>(text[i + 1]) == 0x80 &&
        static_cast<uint8_t>(text[i + 2]) > 0x81)
      continue;
    return false;
  }
  return true;
}

std::string to_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::vector<Point> points;
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p < end;) {
    const Char c = decode_char(p, end);
    if (c.point == kInvalid) {
      flush(points, out);
      out.push_back(*p);
    } else if (c.point < 0x80 || (c.point >= 0x3400 && c.point < 0xA000)) {
      // Neither ASCII nor ideographs compose with what is before them, so that is complete.
      flush(points, out);
      points.push_back({c.point, 0});
    } else {
      decompose(c.point, points);
    }
    p += c.length;
  }
  flush(points, out);
  return out;
}

}  // namespace tightloop
