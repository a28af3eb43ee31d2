#include "data/store/live_documents.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "core/error.h"

namespace tightloop {

namespace {

constexpr size_t kSlots = 1 << 10;       // a row of so many short documents is made once, not once a look
constexpr size_t kMostBytes = 32 << 20;  // of tokens that a thread keeps
constexpr uint64_t kNothing = ~uint64_t{0};

// What a thread made last, by entry. An entry has one slot, so neighbours never drive each other out.
struct Recent {
  struct Slot {
    uint64_t owner = kNothing, entry = kNothing;
    Rendered rendered;
  };
  std::vector<Slot> slots = std::vector<Slot>(kSlots);
  size_t bytes = 0;
  std::string first, second;  // the bytes of a record, padded for simdjson
};

size_t bytes_of(const Rendered& rendered) {
  return (rendered.ids.capacity() + rendered.second.capacity()) * sizeof(int32_t) + rendered.mask.capacity();
}

Recent& recent() {
  static thread_local Recent recent;
  return recent;
}

std::string_view read_into(std::string& buffer, const IndexedFiles& files, const IndexEntry& entry) {
  if (buffer.size() < entry.size + kRecordPadding) buffer.resize(entry.size + kRecordPadding);
  files.read(entry, buffer.data());
  return std::string_view(buffer).substr(0, entry.size);
}

uint64_t next_number() {
  static std::atomic<uint64_t> number{0};
  return number++;
}

}  // namespace

LiveDocuments::LiveDocuments(std::shared_ptr<const RecordIndex::Part> index,
                             std::shared_ptr<const IndexedFiles> files,
                             std::shared_ptr<const Renderer> renderer, const Tokenizer& tokenizer)
    : index_(std::move(index)),
      files_(std::move(files)),
      renderer_(std::move(renderer)),
      tokenizer_(tokenizer),
      number_(next_number()) {}

uint64_t LiveDocuments::begin(uint64_t document) const {
  if (document == index_->documents) return index_->begins.back();
  return index_->begins[index_->firsts.empty() ? document : index_->firsts[document]];
}

std::string LiveDocuments::origin(uint64_t document) const {
  const IndexEntry& entry = index_->all[index_->firsts.empty() ? document : index_->firsts[document]];
  return fmt::format("'{}', byte {}", files_->name(entry), entry.byte);
}

uint64_t LiveDocuments::entry_at(uint64_t position) const {
  return std::ranges::upper_bound(index_->begins, position) - index_->begins.begin() - 1;
}

void LiveDocuments::make(uint64_t entry, Rendered& out) const {
  const IndexEntry& where = index_->all[entry];
  const std::string_view bytes = read_into(recent().first, *files_, where);
  const uint64_t after = entry + 1;
  const bool pair = after < index_->entries && (index_->all[after].bits & IndexEntry::kSecond);
  if (where.bits & IndexEntry::kPart) {
    out.clear();
    tokenizer_.encode(bytes, out.ids);
    if (where.bits & IndexEntry::kLast) out.ids.push_back(tokenizer_.end_of_text());
  } else {
    Record record;
    record.bytes = bytes;
    record.first = where.bits & IndexEntry::kFirst;
    record.last = where.bits & IndexEntry::kLast;
    if (pair) record.second = read_into(recent().second, *files_, index_->all[after]);
    renderer_->render(record, out);
  }
  const auto tokens = [&](uint64_t i) { return index_->begins[i + 1] - index_->begins[i]; };
  if (out.bad != BadKind::kNone || out.ids.size() != tokens(entry) ||
      (pair && out.second.size() != tokens(after))) {
    throw data_error("{}, byte {}: the record is not what it was when the files were indexed. Start again.",
                     files_->name(where), where.byte);
  }
}

LiveDocuments::Tokens LiveDocuments::tokens_of(uint64_t entry) const {
  const bool second = index_->all[entry].bits & IndexEntry::kSecond;
  const uint64_t made = entry - (second ? 1 : 0);
  Recent& memory = recent();
  Recent::Slot& slot = memory.slots[(made + number_ * 389) % kSlots];
  if (slot.owner != number_ || slot.entry != made) {
    memory.bytes -= bytes_of(slot.rendered);
    Rendered rendered = std::move(slot.rendered);
    slot = {};  // should make() throw
    make(made, rendered);
    slot.rendered = std::move(rendered);
    memory.bytes += bytes_of(slot.rendered);
    if (memory.bytes > kMostBytes) {
      for (Recent::Slot& other : memory.slots)
        if (&other != &slot) other = {};
      memory.bytes = bytes_of(slot.rendered);
    }
    slot.owner = number_;
    slot.entry = made;
  }
  const Rendered& rendered = slot.rendered;
  if (second) return {rendered.second, {}};
  return {rendered.ids, rendered.mask};
}

// take(tokens, from, count) for all tokens at [position, position + count), entry by entry.
template <class Take>
void LiveDocuments::for_each(uint64_t position, uint64_t count, const Take& take) const {
  if (count == 0) return;
  for (uint64_t entry = entry_at(position); count > 0; ++entry) {
    const uint64_t from = position - index_->begins[entry];
    const uint64_t here = std::min(count, index_->begins[entry + 1] - position);
    take(tokens_of(entry), from, here);
    position += here, count -= here;
  }
}

void LiveDocuments::read(uint64_t position, uint64_t count, int32_t* ids) const {
  for_each(position, count, [&](const Tokens& tokens, uint64_t from, uint64_t here) {
    ids = std::copy_n(tokens.ids.data() + from, here, ids);
  });
}

uint64_t LiveDocuments::read_mask(uint64_t position, uint64_t count, uint8_t* mask) const {
  if (!index_->masked) {
    std::fill_n(mask, count, uint8_t{1});
    return count;
  }
  uint64_t ones = 0;
  for_each(position, count, [&](const Tokens& tokens, uint64_t from, uint64_t here) {
    if (tokens.mask.empty()) {
      std::fill_n(mask, here, uint8_t{1});
    } else {
      std::copy_n(tokens.mask.data() + from, here, mask);
    }
    ones = std::accumulate(mask, mask + here, ones);
    mask += here;
  });
  return ones;
}

}  // namespace tightloop
