#include "tokenizer/bpe.h"

#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "tokenizer/hf_json.h"
#include "tokenizer/unicode/nfc.h"
#include "tokenizer/word_cache.h"

namespace tightloop {

namespace {

std::vector<AddedToken> only(const std::vector<AddedToken>& tokens, bool normalized, bool nfc) {
  std::vector<AddedToken> some;
  for (const AddedToken& token : tokens)
    if (token.normalized == normalized) {
      some.push_back(token);
      if (normalized && nfc) some.back().content = to_nfc(token.content);
    }
  return some;
}

BpeModel checked(BpeModel model, const std::string& source) {
  const auto count = static_cast<int64_t>(model.tokens.size());
  if (count > kTokenLimit) throw data_error("{}: ids must be below {}.", source, kTokenLimit);
  for (const MergeRule& rule : model.merges) {
    const auto inside = [&](int32_t id) { return id >= 0 && id < count; };
    if (!inside(rule.left) || !inside(rule.right) || !inside(rule.result) ||
        model.tokens[rule.result].bytes != model.tokens[rule.left].bytes + model.tokens[rule.right].bytes)
      throw data_error("{}: the merge of tokens {} and {} does not make token {}.", source, rule.left,
                       rule.right, rule.result);
  }
  return model;
}

size_t pair_of(char first, char second) {
  return static_cast<uint8_t>(first) << 8 | static_cast<uint8_t>(second);
}

}  // namespace

struct Bpe::Scratch {
  static constexpr size_t kOut = 4096;
  WordCache words;
  MergeScratch merging;
  std::vector<uint32_t> symbols;
  std::vector<int32_t> long_ids;
  int32_t out[kOut + 128];  // what is ready, before it goes to the caller's vector
  size_t ready = 0;
};

/// One call of encode().
class Bpe::Run {
 public:
  Run(const Bpe& bpe, std::vector<int32_t>& ids, bool parse, std::vector<uint32_t>* ends = nullptr)
      : bpe_(bpe), ids_(ids), parse_(parse), ends_(ends) {
    static std::atomic<size_t> threads{0};
    thread_local const size_t home = threads.fetch_add(1, std::memory_order_relaxed);
    for (size_t i = 0; i < bpe.slots_.size() && !scratch_; ++i) {
      slot_ = &bpe.slots_[(home + i) % bpe.slots_.size()];
      if (slot_->scratch.load(std::memory_order_relaxed))
        scratch_ = slot_->scratch.exchange(nullptr, std::memory_order_acquire);
    }
    if (!scratch_) {
      slot_ = &bpe.slots_[home % bpe.slots_.size()];
      scratch_ = new Scratch;
    }
    scratch_->ready = 0;
  }
  ~Run() { delete slot_->scratch.exchange(scratch_, std::memory_order_acq_rel); }

  void encode(std::string_view text) {
    each_segment(
        parse_ ? &bpe_.added_raw_ : nullptr, text,
        [&](std::string_view segment) {
          if (!bpe_.model_.nfc || surely_nfc(segment)) return normalized(segment);
          normalized(to_nfc(segment));
        },
        [&](size_t begin, size_t end) {
          if (ends_) set_ends(begin, end);
        });
    flush();
  }

 private:
  /// Of the ids since the last call, which are those of a segment.
  void set_ends(size_t begin, size_t end) {
    flush();
    const size_t first = ends_->size();
    for (size_t i = first, at = begin; i < ids_.size(); ++i) {
      at += bpe_.token_bytes_[static_cast<size_t>(ids_[i])];
      ends_->push_back(static_cast<uint32_t>(std::min(at, end)));
    }
    if (ends_->size() > first) ends_->back() = static_cast<uint32_t>(end);
  }

  static void nothing(size_t, size_t) {}

  /// Calls body(text) for what is between the added tokens, and done(begin, end) behind each part.
  template <class Body, class Done = void (*)(size_t, size_t)>
  void each_segment(const AddedTokens* added, std::string_view text, Body&& body, Done&& done = nothing) {
    size_t from = 0, search = 0;
    if (added && !added->empty()) {
      while (const auto found = added->find(text, search, from)) {
        if (found->begin > from) {
          body(text.substr(from, found->begin - from));
          done(from, found->begin);
        }
        put(found->id);
        done(found->begin, found->end);
        from = found->end;
        search = found->search;
      }
    }
    if (from == text.size()) return;
    body(text.substr(from));
    done(from, text.size());
  }

  void normalized(std::string_view text) {
    each_segment(parse_ ? &bpe_.added_normalized_ : nullptr, text, [&](std::string_view segment) {
      if (!bpe_.model_.add_prefix_space || segment[0] == ' ') return pieces(segment, 0);
      const std::string spaced = " " + std::string(segment);
      pieces(spaced, 0);
    });
  }

  void pieces(std::string_view text, size_t rule) {
    const auto& splits = bpe_.model_.splits;
    const bool last = rule + 1 >= splits.size();
    if (splits.empty()) {
      end_ = text.data() + text.size();
      word(text);
    } else if (bpe_.regexes_[rule]) {
      bpe_.regexes_[rule]->split(text, [&](std::string_view piece) {
        if (!last) return pieces(piece, rule + 1);
        end_ = piece.data() + piece.size();
        word(piece);
      });
    } else if (last) {
      end_ = text.data() + text.size();
      scan(splits[rule].pattern, text, [&](std::string_view piece) { word(piece); });
    } else {
      scan(splits[rule].pattern, text, [&](std::string_view piece) { pieces(piece, rule + 1); });
    }
  }

  void word(std::string_view word) {
    if (word.size() <= WordCache::kMaxBytes && static_cast<uint8_t>(word[0]) < 0x80) [[likely]] {
      if (from_cache(WordCache::key_of(word, end_))) return;
    }
    new_word(word);
  }

  bool from_cache(const WordCache::Key& key) {
    const WordCache::Entry* entry = scratch_->words.find(key);
    if (!entry) return false;
    std::memcpy(scratch_->out + scratch_->ready, entry->ids, sizeof entry->ids);
    scratch_->ready += entry->count;
    if (scratch_->ready >= Scratch::kOut) flush();
    return true;
  }

  [[gnu::noinline]] void new_word(std::string_view word) {
    if (!bpe_.exceptions_.empty()) {
      const auto found = bpe_.exceptions_.find(word);
      if (found != bpe_.exceptions_.end()) return put(found->second);
    }
    if (bpe_.lacks_bytes_) return odd_word(word);
    // No merge crosses a pair of bytes that is inside of no token, so the parts between are encoded alone: a
    // text without spaces becomes short parts that the cache knows.
    size_t begin = 0;
    for (size_t i = 1; i < word.size(); ++i) {
      if (bpe_.crossings_.test(pair_of(word[i - 1], word[i]))) continue;
      part(word.substr(begin, i - begin));
      begin = i;
    }
    part(word.substr(begin));
  }

  void part(std::string_view bytes) {
    if (bytes.size() > WordCache::kMaxBytes) return merged(bytes);
    const WordCache::Key key = WordCache::key_of(bytes, end_);
    if (from_cache(key)) return;
    uint32_t symbols[WordCache::kMaxBytes];
    for (size_t i = 0; i < bytes.size(); ++i) symbols[i] = bpe_.byte_ids_[static_cast<uint8_t>(bytes[i])];
    const size_t count = merge_short(bpe_.table_, symbols, bytes.size());
    int32_t* out = scratch_->out + scratch_->ready;
    std::copy_n(symbols, count, out);
    if (count <= WordCache::kMaxIds && !bpe_.exceptions_.contains(bytes))
      scratch_->words.put(key, out, count);
    advance(count);
  }

  void merged(std::string_view bytes) {
    if (bytes.size() <= 64) {
      uint32_t symbols[64];
      for (size_t i = 0; i < bytes.size(); ++i) symbols[i] = bpe_.byte_ids_[static_cast<uint8_t>(bytes[i])];
      const size_t count = merge_short(bpe_.table_, symbols, bytes.size());
      std::copy_n(symbols, count, scratch_->out + scratch_->ready);
      advance(count);
    } else {
      flush();
      merge_long(bpe_.table_, bytes, bpe_.byte_ids_, bpe_.token_bytes_, ids_, scratch_->merging);
    }
  }

  /// Where the vocabulary lacks bytes: they become the unknown token, or nothing at all.
  void odd_word(std::string_view word) {
    auto& symbols = scratch_->symbols;
    symbols.clear();
    for (const char c : word) {
      const int32_t id = bpe_.byte_ids_[static_cast<uint8_t>(c)];
      if (id >= 0)
        symbols.push_back(id);
      else if (bpe_.model_.unknown >= 0)
        symbols.push_back(bpe_.model_.unknown);
    }
    symbols.resize(merge_heap(bpe_.table_, symbols.data(), symbols.size(), scratch_->merging));
    for (const uint32_t id : symbols) put(static_cast<int32_t>(id));
  }

  void put(int32_t id) {
    scratch_->out[scratch_->ready] = id;
    advance(1);
  }
  void advance(size_t count) {
    scratch_->ready += count;
    if (scratch_->ready >= Scratch::kOut) flush();
  }
  void flush() {
    ids_.insert(ids_.end(), scratch_->out, scratch_->out + scratch_->ready);
    scratch_->ready = 0;
  }

  const Bpe& bpe_;
  std::vector<int32_t>& ids_;
  const bool parse_;
  std::vector<uint32_t>* const ends_;
  Scratch* scratch_ = nullptr;
  Slot* slot_ = nullptr;
  const char* end_ = nullptr;  // of the text that words are cut from
};

Bpe::Bpe(BpeModel model, const std::string& source)
    : model_(checked(std::move(model), source)),
      source_(source),
      table_(model_.merges, model_.same_rank),
      added_raw_(only(model_.added, false, false)),
      added_normalized_(only(model_.added, true, model_.nfc)) {
  index_tokens(source);
  find_crossings();
  for (const SplitRule& rule : model_.splits)
    regexes_.push_back(rule.regex.empty() ? nullptr : std::make_unique<RegexSplit>(rule.regex));
  if (model_.ignore_merges) find_exceptions();
}

Bpe::~Bpe() {
  for (Slot& slot : slots_) delete slot.scratch.load();
}

void Bpe::index_tokens(const std::string& source) {
  byte_ids_.fill(-1);
  token_bytes_.assign(model_.tokens.size(), 1);
  for (size_t id = 0; id < model_.tokens.size(); ++id) {
    const BpeModel::Token& token = model_.tokens[id];
    token_bytes_[id] = static_cast<uint32_t>(token.bytes.size());
    if (token.kind != BpeModel::Token::kBytes) continue;
    ids_by_bytes_.try_emplace(token.bytes, static_cast<int32_t>(id));
    if (token.bytes.size() == 1) byte_ids_[static_cast<uint8_t>(token.bytes[0])] = static_cast<int32_t>(id);
  }
  lacks_bytes_ = std::count(byte_ids_.begin(), byte_ids_.end(), -1) > 0;
  for (const AddedToken& token : model_.added) {
    if (token.id < 0 || token.id >= vocab_size())
      throw data_error("{}: the added token '{}' has id {}, outside of the vocabulary.", source,
                       token.content, token.id);
    ids_by_bytes_.insert_or_assign(token.content, token.id);
  }
  end_of_text_ = find_end_of_text(model_.end_of_text);
}

std::optional<int32_t> Bpe::find_end_of_text(const std::string& named) const {
  for (const std::string& name : {std::string("<|endoftext|>"), std::string("<|end_of_text|>"), named,
                                  std::string("<|bos|>"), std::string("</s>"), std::string("<eos>")})
    if (const auto id = name.empty() ? std::nullopt : token_id(name)) return id;
  return {};
}

void Bpe::find_crossings() {
  for (const MergeRule& rule : model_.merges) {
    const std::string &left = model_.tokens[rule.left].bytes, &right = model_.tokens[rule.right].bytes;
    if (!left.empty() && !right.empty()) crossings_.set(pair_of(left.back(), right.front()));
  }
}

void Bpe::find_exceptions() {
  MergeScratch scratch;
  std::vector<uint32_t> symbols;
  for (const auto& [bytes, id] : ids_by_bytes_) {
    if (model_.tokens[id].kind != BpeModel::Token::kBytes || lacks_bytes_) continue;
    symbols.clear();
    for (const char c : bytes) symbols.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    const size_t count = symbols.size() <= 64 ? merge_short(table_, symbols.data(), symbols.size())
                                              : merge_heap(table_, symbols.data(), symbols.size(), scratch);
    if (count != 1 || symbols[0] != static_cast<uint32_t>(id)) exceptions_[bytes] = id;
  }
}

void Bpe::encode(std::string_view text, std::vector<int32_t>& ids, SpecialText special) const {
  const bool parse = special == SpecialText::kDefault ? model_.parse_added : special == SpecialText::kParse;
  Run(*this, ids, parse).encode(text);
}

bool Bpe::encode_with_ends(std::string_view text, std::vector<int32_t>& ids,
                           std::vector<uint32_t>& ends) const {
  std::vector<int32_t> own;
  std::vector<uint32_t> own_ends;
  Run(*this, own, true, &own_ends).encode(text);
  ids.insert(ids.end(), own.begin(), own.end());
  ends.insert(ends.end(), own_ends.begin(), own_ends.end());
  return true;
}

std::string Bpe::decode(std::span<const int32_t> ids) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size())
      throw data_error("there is no token {} in {} (ids go from 0 to {}).", id, source_, vocab_size() - 1);
    bytes += model_.tokens[id].bytes;  // of an absent one: none
  }
  return bytes;
}

std::optional<int32_t> Bpe::token_id(std::string_view token) const {
  const auto found = ids_by_bytes_.find(token);
  if (found == ids_by_bytes_.end()) return std::nullopt;
  return found->second;
}

std::vector<int32_t> Bpe::token_bytes() const {
  std::vector<int32_t> bytes;
  for (const auto& token : model_.tokens) bytes.push_back(static_cast<int32_t>(token.bytes.size()));
  for (const AddedToken& token : model_.added)
    if (token.special) bytes[token.id] = 0;
  return bytes;
}

int32_t Bpe::end_of_text() const {
  if (!end_of_text_)
    throw data_error("{} has no token that ends a document. Add one named <|endoftext|> to it.", source_);
  return *end_of_text_;
}

void Bpe::write(const std::filesystem::path& folder) const {
  write_hf_json(model_, folder / "tokenizer.json");
  if (const std::string config = hf_config(model_); !config.empty())
    write_file_whole(folder / "tokenizer_config.json", config);
}

uint64_t Bpe::fingerprint() const {
  Hasher hasher;
  const auto number = [&](uint64_t value) { hasher.update(&value, sizeof value); };
  const auto text = [&](std::string_view bytes) {
    number(bytes.size());
    hasher.update(bytes.data(), bytes.size());
  };
  number(model_.tokens.size());
  for (const BpeModel::Token& token : model_.tokens)
    number(token.kind != BpeModel::Token::kAbsent), text(token.bytes);
  number(model_.merges.size());
  for (const MergeRule& rule : model_.merges) number(rule.left), number(rule.right), number(rule.result);
  number(model_.added.size());
  for (const AddedToken& token : model_.added) {
    text(token.content);
    number(token.id);
    number(token.normalized | token.single_word << 1 | token.lstrip << 2 | token.rstrip << 3);
  }
  number(model_.splits.size());
  for (const SplitRule& rule : model_.splits) text(rule.regex.empty() ? regex_of(rule.pattern) : rule.regex);
  number(model_.nfc | model_.add_prefix_space << 1 | model_.ignore_merges << 2);
  number(static_cast<uint64_t>(model_.unknown));
  // Only where they are not as usual: most shards and indexes of before these counted are still good.
  if (!model_.parse_added) text("spelled out");
  if (model_.same_rank) text("same rank");
  if (end_of_text_ != find_end_of_text("")) number(static_cast<uint64_t>(*end_of_text_));
  return hasher.digest();
}

}  // namespace tightloop
