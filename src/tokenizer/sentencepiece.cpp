#include "tokenizer/sentencepiece.h"

#include <fmt/ranges.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/interrupt.h"
#include "core/threads.h"

namespace tightloop {

namespace {

// The trainer leaves longer sentences out, and ends the program at a word of 65535 characters.
constexpr size_t kSentenceBytes = 1 << 15;

/// Where a text of more than kSentenceBytes may be cut.
size_t sentence_end(std::string_view text) {
  for (const char mark : {'\n', ' '})
    if (const size_t at = text.rfind(mark, kSentenceBytes - 1); at != text.npos && at > 0) return at + 1;
  size_t end = kSentenceBytes;
  while (end > kSentenceBytes - 4 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  return end;
}

/// Sentences one after the other, as the trainer asks for them.
class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::function<bool(std::string&)>& next) : next_(next) { Sentences::Next(); }
  bool done() const override { return done_; }
  void Next() override {
    if (rest_.empty()) {
      done_ = !next_(sentence_);
      if (done_ || sentence_.size() <= kSentenceBytes) return;
      rest_.swap(sentence_);
      at_ = 0;
    }
    const std::string_view left = std::string_view(rest_).substr(at_);
    sentence_ = left.substr(0, left.size() <= kSentenceBytes ? left.size() : sentence_end(left));
    at_ += sentence_.size();
    if (at_ == rest_.size()) rest_.clear();
  }
  const std::string& value() const override { return sentence_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::function<bool(std::string&)>& next_;
  std::string sentence_, rest_;
  size_t at_ = 0;  // of rest_, what comes next
  bool done_ = false;
};

/// The library's messages begin with a place in its source and a condition in brackets: users need neither.
std::string reason(const sentencepiece::util::Status& status) {
  std::string text = status.message();
  const size_t condition = text.rfind("] ");
  if (condition != std::string::npos && condition + 2 < text.size()) text.erase(0, condition + 2);
  while (!text.empty() && text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

struct SentencePiece::Processor : sentencepiece::SentencePieceProcessor {};

SentencePiece::SentencePiece(const std::string& bytes, const std::string& source)
    : processor_(std::make_unique<Processor>()), source_(source) {
  const auto status = processor_->LoadFromSerializedProto(bytes);
  if (!status.ok() || bytes.empty())
    throw data_error("{} is not a SentencePiece model ({}).", source,
                     bytes.empty() ? "it is empty" : reason(status));
  words_ = UnigramWords::make(bytes, [&](const std::string& character) {
    sentencepiece::ImmutableSentencePieceText pieces;
    if (!processor_->Encode(character, pieces.mutable_proto()).ok()) return false;
    std::string all;
    for (const auto& piece : pieces.pieces()) all += piece.piece();
    return all == "\xe2\x96\x81" + character;
  });
}

SentencePiece::~SentencePiece() = default;

int32_t SentencePiece::vocab_size() const { return processor_->GetPieceSize(); }

void SentencePiece::encode(std::string_view text, std::vector<int32_t>& ids) const {
  if (words_ && words_->encode(text, ids)) return;
  static thread_local std::vector<int> some;
  const auto status = processor_->Encode({text.data(), text.size()}, &some);
  if (!status.ok()) throw data_error("{} could not encode a text: {}.", source_, reason(status));
  ids.insert(ids.end(), some.begin(), some.end());
}

bool SentencePiece::encode_with_ends(std::string_view text, std::vector<int32_t>& ids,
                                     std::vector<uint32_t>& ends) const {
  const auto add = [&](size_t begin, size_t end) {
    sentencepiece::ImmutableSentencePieceText pieces;
    const auto status = processor_->Encode({text.data() + begin, end - begin}, pieces.mutable_proto());
    if (!status.ok()) throw data_error("{} could not encode a text: {}.", source_, reason(status));
    for (const auto& piece : pieces.pieces()) {
      ids.push_back(static_cast<int32_t>(piece.id()));
      ends.push_back(static_cast<uint32_t>(begin + piece.end()));
    }
  };
  size_t from = 0;
  for (size_t at = 0; (at = text.find_first_of("<[", at)) != text.npos;) {
    const std::string_view name = bracketed(text.substr(at));
    const auto id = name.empty() ? std::nullopt : token_id(name);
    if (!id || !processor_->IsControl(*id)) {
      ++at;
      continue;
    }
    if (at > from) add(from, at);
    from = at += name.size();
    ids.push_back(*id);
    ends.push_back(static_cast<uint32_t>(at));
  }
  if (from < text.size()) add(from, text.size());
  return true;
}

std::string SentencePiece::decode(std::span<const int32_t> ids) const {
  for (const int32_t id : ids)
    if (id < 0 || id >= vocab_size())
      throw data_error("there is no token {} in {} (ids go from 0 to {}).", id, source_, vocab_size() - 1);
  sentencepiece::ImmutableSentencePieceText decoded;
  const auto status = processor_->Decode(std::vector<int>(ids.begin(), ids.end()), decoded.mutable_proto());
  if (!status.ok()) throw data_error("{} could not decode: {}.", source_, reason(status));
  // The library writes U+FFFD for the bytes of a character that is not whole: here they stay what they are,
  // for the rest of it may come with the next tokens.
  if (std::ranges::none_of(ids, [&](int32_t id) { return processor_->IsByte(id); })) return decoded.text();
  std::string text;
  for (const auto& piece : decoded.pieces()) {
    if (processor_->IsByte(static_cast<int>(piece.id()))) {
      text += static_cast<char>(std::stoi(piece.piece().substr(3, 2), nullptr, 16));  // <0xE2>
    } else {
      text += piece.surface();
    }
  }
  return text;
}

std::optional<int32_t> SentencePiece::token_id(std::string_view token) const {
  const std::string piece(token);
  const int id = processor_->PieceToId(piece);
  if (id < 0 || id >= vocab_size() || processor_->IdToPiece(id) != piece) return std::nullopt;
  return id;
}

std::vector<int32_t> SentencePiece::token_bytes() const {
  constexpr std::string_view kSpace = "\u2581";
  std::vector<int32_t> bytes;
  for (int id = 0; id < vocab_size(); ++id) {
    const std::string& piece = processor_->IdToPiece(id);
    size_t size = piece.size();
    for (size_t at = piece.find(kSpace); at != piece.npos; at = piece.find(kSpace, at + kSpace.size()))
      size -= kSpace.size() - 1;
    const bool text = !processor_->IsControl(id) && !processor_->IsUnknown(id) && !processor_->IsUnused(id);
    bytes.push_back(processor_->IsByte(id) ? 1 : text ? static_cast<int32_t>(size) : 0);
  }
  return bytes;
}

int32_t SentencePiece::end_of_text() const {
  const int id = processor_->eos_id();
  if (id < 0) throw data_error("{} has no end of sentence. Train it with one (eos_id).", source_);
  return id;
}

void SentencePiece::write(const std::filesystem::path& folder) const {
  write_file_whole(folder / "tokenizer.model", processor_->serialized_model_proto());
}

uint64_t SentencePiece::fingerprint() const { return hash64(processor_->serialized_model_proto()); }

std::unique_ptr<Tokenizer> train_sentencepiece(const SentencePieceTrainOptions& options,
                                               const std::function<bool(std::string&)>& next_sentence) {
  if (options.model_type == TokenizerType::kByteBpe)
    throw usage_error("a SentencePiece model is of type unigram or bpe, not {}.",
                      name_of(options.model_type));
  const int threads = options.threads > 0 ? options.threads : available_cores();
  for (const std::string& symbol : options.control_symbols)
    if (symbol.empty() || symbol.find(',') != symbol.npos)
      throw usage_error("a special token of a SentencePiece model is text without a comma, not '{}'.",
                        symbol);
  std::unordered_map<std::string, std::string> arguments{
      {"vocab_size", std::to_string(options.vocab_size)},
      {"model_type", std::string(name_of(options.model_type))},
      {"character_coverage", std::to_string(options.character_coverage)},
      {"pad_id", std::to_string(options.pad_id)},
      {"unk_id", std::to_string(options.unk_id)},
      {"bos_id", std::to_string(options.bos_id)},
      {"eos_id", std::to_string(options.eos_id)},
      {"num_threads", std::to_string(threads)},
      {"max_sentence_length", std::to_string(kSentenceBytes)},
      {"minloglevel", "2"},
      {"hard_vocab_limit", options.exact ? "true" : "false"},
  };
  if (!options.control_symbols.empty())
    arguments["control_symbols"] = fmt::format("{}", fmt::join(options.control_symbols, ","));
  const InterruptEndsProgram at_once;
  Sentences sentences(next_sentence);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &sentences, &model);
  if (!status.ok())
    throw data_error(
        "the SentencePiece model could not be trained: {}. The size is tokenizer.vocab_size in a recipe, "
        "--vocab-size of 'tokenizer train'.",
        reason(status));
  return std::make_unique<SentencePiece>(model, "the trained SentencePiece model");
}

}  // namespace tightloop
