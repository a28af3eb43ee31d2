#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/protobuf.h"
#include "tokenizer/sentencepiece.h"

namespace tightloop {

namespace {

// Of sentencepiece_model.proto.
enum : uint64_t { kPieces = 1, kTrainer = 2, kNormalizer = 3 };  // of the model
enum : uint64_t {
  kModelType = 3,
  kByteFallback = 35,
  kUnkId = 40,
  kBosId,
  kEosId,
  kPadId
};                                                                                     // of the trainer
enum : uint64_t { kName = 1, kCharsmap, kDummyPrefix, kRemoveSpaces, kEscapeSpaces };  // of the normalizer
enum : uint64_t { kUnigramType = 1, kBpeType = 2 };

constexpr const char *kOwnRest = "tightloop.sentencepiece", *kPrefixKey = "tokenizer.ggml.add_space_prefix",
                     *kSpacesKey = "tokenizer.ggml.remove_extra_whitespaces",
                     *kCharsmapKey = "tokenizer.ggml.precompiled_charsmap";

struct PieceModel {
  GgufTokenLists lists;
  uint64_t type = kUnigramType;
  bool prefix = true, remove_spaces = true;
  std::string charsmap;
  std::string rest;  // all fields but the pieces
};

PieceModel parse_pieces(const std::string& bytes) {
  PieceModel model;
  ProtobufOutput rest;
  for (ProtobufFields all(bytes); all.next();) {
    if (all.number == kPieces) {
      std::string text;
      float score = 0;
      uint64_t type = 1;
      for (ProtobufFields piece(all.bytes); piece.next();) {
        if (piece.number == 1) text = piece.bytes;
        if (piece.number == 2 && piece.bytes.size() == 4) std::memcpy(&score, piece.bytes.data(), 4);
        if (piece.number == 3) type = piece.value;
      }
      model.lists.texts.push_back(std::move(text));
      model.lists.scores.push_back(score);
      model.lists.types.push_back(static_cast<GgufTokenType>(type));
      continue;
    }
    rest.text(all.number, all.bytes);
    for (ProtobufFields field(all.bytes); field.next();) {
      if (all.number == kTrainer && field.number == kModelType) model.type = field.value;
      if (all.number != kNormalizer) continue;
      if (field.number == kCharsmap) model.charsmap = field.bytes;
      if (field.number == kDummyPrefix) model.prefix = field.value != 0;
      if (field.number == kRemoveSpaces) model.remove_spaces = field.value != 0;
    }
  }
  model.rest = rest.bytes();
  return model;
}

GgufValue bytes_value(const std::string& bytes) {
  return {.kind = GgufKind::kUint8, .list = true, .bytes = bytes};
}

/// A list of bytes, with or without a sign; empty where there is none.
std::string bytes_of(const GgufFile& file, const char* key) {
  const GgufValue* value = file.metadata().find(key);
  if (!value) return {};
  if (!value->list || (value->kind != GgufKind::kUint8 && value->kind != GgufKind::kInt8))
    throw checkpoint_error("'{}': {} must be a list of bytes.", file.path().string(), key);
  return value->bytes;
}

bool flag_of(const GgufFile& file, const char* key, bool fallback) {
  const GgufValue* value = file.metadata().find(key);
  return value ? value->flag().value_or(fallback) : fallback;
}

/// Trainer and normalizer of a file that others wrote.
std::string made_up_rest(const GgufFile& file, const GgufTokenLists& lists, bool bpe) {
  const GgufSpecialTokens special = read_gguf_special_tokens(file);
  ProtobufOutput trainer, normalizer, rest;
  trainer.number(kModelType, bpe ? kBpeType : kUnigramType);
  trainer.number(kByteFallback, std::ranges::count(lists.types, GgufTokenType::kByte) > 0);
  for (const auto& [field, id] : {std::pair{kUnkId, special.unknown},
                                  {kBosId, special.begin},
                                  {kEosId, special.end},
                                  {kPadId, special.pad}})
    trainer.number(field, static_cast<uint64_t>(id));
  const std::string charsmap = bytes_of(file, kCharsmapKey);
  normalizer.text(kName, charsmap.empty() ? "identity" : "user_defined");
  normalizer.text(kCharsmap, charsmap);
  normalizer.number(kDummyPrefix, flag_of(file, kPrefixKey, true));
  normalizer.number(kRemoveSpaces, flag_of(file, kSpacesKey, false));
  normalizer.number(kEscapeSpaces, 1);
  rest.text(kTrainer, trainer.bytes());
  rest.text(kNormalizer, normalizer.bytes());
  return rest.bytes();
}

/// The bytes of its file.
std::string file_bytes(const SentencePiece& tokenizer) {
  const fs::path folder = partial_path(temporary_folder() / "tightloop-tokenizer");
  make_folder(folder);
  tokenizer.save(folder);
  std::string bytes = read_file(folder / "tokenizer.model");
  remove_path(folder);
  return bytes;
}

}  // namespace

void add_gguf_sentencepiece(const SentencePiece& tokenizer, int64_t rows, GgufMetadata& metadata) {
  PieceModel model = parse_pieces(file_bytes(tokenizer));
  const bool bpe = model.type == kBpeType;
  if (!bpe && model.type != kUnigramType)
    throw usage_error(
        "llama.cpp has SentencePiece models of types bpe and unigram alone: this one cannot be exported as "
        "GGUF.");
  if (bpe && std::ranges::count(model.lists.types, GgufTokenType::kByte) < 256)
    throw usage_error(
        "llama.cpp wants SentencePiece models of type bpe with a token for each byte (byte_fallback), and "
        "this one has none: it cannot be exported as GGUF.");
  if (bpe && (!model.charsmap.empty() || model.remove_spaces))
    log::warn(
        "GGUF: llama.cpp does not normalize text for a SentencePiece model of type bpe, as this one does: "
        "unusual characters and runs of spaces become other tokens there.");
  metadata.add("tokenizer.ggml.model", GgufValue::of(bpe ? "llama" : "t5"));
  metadata.add("tokenizer.ggml.pre", GgufValue::of("default"));
  const auto unknown =
      std::ranges::find(model.lists.types, GgufTokenType::kUnknown) - model.lists.types.begin();
  if (unknown < std::ssize(model.lists.types))
    metadata.add("tokenizer.ggml.unknown_token_id", GgufValue::of(static_cast<uint32_t>(unknown)));
  add_gguf_token_lists(std::move(model.lists), rows, metadata);
  metadata.add(kPrefixKey, GgufValue::of(model.prefix));
  metadata.add(kSpacesKey, GgufValue::of(model.remove_spaces));
  if (!bpe && !model.charsmap.empty()) metadata.add(kCharsmapKey, bytes_value(model.charsmap));
  metadata.add(kOwnRest, bytes_value(model.rest));
}

std::string read_gguf_sentencepiece(const GgufFile& file) {
  const GgufTokenLists lists = read_gguf_token_lists(file);
  if (lists.scores.empty())
    throw checkpoint_error("'{}' has no tokenizer.ggml.scores, which a SentencePiece model needs.",
                           file.path().string());
  ProtobufOutput model;
  for (size_t id = 0; id < lists.texts.size(); ++id) {
    ProtobufOutput piece;
    piece.text(1, lists.texts[id]);
    piece.real(2, lists.scores[id]);
    if (lists.types[id] != GgufTokenType::kNormal) piece.number(3, static_cast<uint64_t>(lists.types[id]));
    model.text(kPieces, piece.bytes());
  }
  const std::string own = bytes_of(file, kOwnRest);
  const bool bpe = *file.metadata().find("tokenizer.ggml.model")->text() == "llama";
  model.fields(own.empty() ? made_up_rest(file, lists, bpe) : own);
  return model.bytes();
}

}  // namespace tightloop
