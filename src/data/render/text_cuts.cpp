#include "data/render/text_cuts.h"

#include <algorithm>

namespace tightloop {

namespace {

constexpr size_t kPart = 4 << 10;  // a row of a few hundred tokens touches one or two parts
constexpr size_t kLongInPlace = 2 * kPart;
constexpr size_t kLongRecord = 32 << 10;  // shorter texts inside of JSON are rendered whole
constexpr size_t kSearched = 512;         // bytes in which the best place is looked for
constexpr int kAttempts = 4;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// A place near `at`: before a space between two words, behind a line end, before a full-width comma or stop,
// or anywhere between two characters.
size_t place_near(std::string_view text, size_t at) {
  const size_t end = std::min(at + kSearched, text.size() - 1);
  for (size_t i = at; i < end; ++i)
    if (text[i] == ' ' && is_letter(text[i - 1]) && is_letter(text[i + 1])) return i;
  for (size_t i = at; i < end; ++i)
    if (text[i - 1] == '\n' && !is_space(text[i])) return i;
  for (size_t i = at; i < end; ++i)
    if (text.substr(i).starts_with("\u3002") || text.substr(i).starts_with("\uff0c")) return i;
  while (at + 1 < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) ++at;
  return at;
}

class CuttingRenderer : public Renderer {
 public:
  CuttingRenderer(const Renderer& inner, const Tokenizer& tokenizer) : inner_(inner), tokenizer_(tokenizer) {}

 protected:
  void make(const Record& record, Rendered& out) const override {
    inner_.render(record, out);
    if (out.bad != BadKind::kNone || !out.mask.empty() || record.bytes.size() <= kLongInPlace) return;
    const auto text = inner_.plain_text(record);
    if (!text) return;
    const bool in_place = text->data() == record.bytes.data();
    if (text->size() <= (in_place ? kLongInPlace : kLongRecord)) return;
    const size_t tokens = out.ids.size() - (record.last ? 1 : 0);
    out.cuts = find_cuts(*text, std::span(out.ids).first(tokens), tokenizer_, kPart);
    if (!in_place && !out.cuts.empty()) out.text = *text;
  }

 private:
  const Renderer& inner_;
  const Tokenizer& tokenizer_;
};

}  // namespace

std::vector<TextCut> find_cuts(std::string_view text, std::span<const int32_t> ids,
                               const Tokenizer& tokenizer, size_t size) {
  static thread_local std::vector<int32_t> part;
  const auto starts_at = [&](TextCut from, size_t end) {  // the tokens of text[from, end) stand there in ids
    part.clear();
    tokenizer.encode(text.substr(from.byte, end - from.byte), part);
    return part.size() <= ids.size() - from.token &&
           std::equal(part.begin(), part.end(), ids.begin() + from.token);
  };
  std::vector<TextCut> cuts;
  const auto last = [&] { return cuts.empty() ? TextCut{} : cuts.back(); };
  for (bool found = true; found && text.size() - last().byte > 2 * size;) {
    found = false;
    for (size_t attempt = 1; attempt <= kAttempts && !found; ++attempt) {
      const size_t at = last().byte + attempt * size;
      if (at + 1 >= text.size()) break;
      const size_t end = place_near(text, at);
      found = end < text.size() && starts_at(last(), end);
      if (found)
        cuts.push_back({static_cast<uint32_t>(end), last().token + static_cast<uint32_t>(part.size())});
    }
  }
  // All but the last part are verified; if that one does not come out, the cuts before it may be to blame.
  for (int attempt = 0; attempt < kAttempts && !cuts.empty(); ++attempt, cuts.pop_back())
    if (starts_at(last(), text.size()) && last().token + part.size() == ids.size()) return cuts;
  return {};
}

std::unique_ptr<Renderer> make_cutting_renderer(const Renderer& inner, const Tokenizer& tokenizer) {
  return std::make_unique<CuttingRenderer>(inner, tokenizer);
}

}  // namespace tightloop
