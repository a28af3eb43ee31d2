#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/data_config.h"
#include "data/read/record.h"
#include "data/render/chat.h"
#include "tokenizer/tokenizer.h"

namespace tightloop {

/// A place where a long text may be cut: the tokens of its parts are those of the whole.
struct TextCut {
  uint32_t byte = 0, token = 0;  // of the text, and of its tokens
};

/// A record as tokens. Reused from record to record for its memory.
struct Rendered {
  std::vector<int32_t> ids;
  std::vector<uint8_t> mask;    // empty: all is to be learned
  std::vector<int32_t> second;  // of a pair: the translation
  std::vector<TextCut> cuts;    // of a long text, where an index is made (data/render/text_cuts.h)
  std::string text;             // what `cuts` are of, when it is not in the record as it is
  BadKind bad = BadKind::kNone;
  std::string why;

  void clear();
};

/// Makes tokens of records. Safe to call from many threads at once.
class Renderer {
 public:
  virtual ~Renderer() = default;
  /// Fills `out`; a record that cannot be used leaves its kind and the reason there.
  void render(const Record& record, Rendered& out) const;
  /// The text of a good record whose tokens (and an end token after its last piece), all to be learned, are
  /// all that render() makes of it; nothing for other records. Valid until this thread's next call.
  virtual std::optional<std::string_view> plain_text(const Record&) const { return std::nullopt; }

 protected:
  /// Throws BadRecord.
  virtual void make(const Record& record, Rendered& out) const = 0;
};

/// The tokens around each text: data.begin_token and data.end_token; -1: none.
class TextMarks {
 public:
  TextMarks(const DataConfig& config, const Tokenizer& tokenizer);
  int32_t begin() const { return begin_; }
  /// Not every tokenizer has an end of text, and conversations need none: it is asked for late.
  int32_t end() const { return end_of_text_ ? tokenizer_.end_of_text() : end_; }
  /// Whether there is an end of text behind and nothing before it.
  bool plain() const { return end_of_text_ && begin_ < 0; }

 private:
  const Tokenizer& tokenizer_;
  int32_t begin_ = -1, end_ = -1;
  bool end_of_text_;
};

/// Texts as they are between their marks; with `loss_after`, what follows its first occurrence is
/// learned.
std::unique_ptr<Renderer> make_text_renderer(const DataConfig& config, const Tokenizer& tokenizer);
/// JSON records as data.format says. Without `chat`, a conversation is a usage error that gives the reason.
std::unique_ptr<Renderer> make_json_renderer(const DataConfig& config, const Tokenizer& tokenizer,
                                             std::shared_ptr<const ChatTemplate> chat,
                                             std::string why_no_chat = "");

/// Fields beside a conversation (format `chat`) or a question that change what it means: a record where one
/// of them is filled in is bad, unless data.ignore_fields names it.
std::span<const std::string_view> fields_with_meaning(RecordFormat format);
/// Records with one answer: Alpaca's {instruction, input, output}, {prompt, completion}, and preference pairs
/// {prompt, chosen, rejected}, of which data.preferences chooses one.
enum class AnswerShape { kNone, kInstruction, kPrompt, kPreference };
/// The same for these.
std::span<const std::string_view> fields_with_meaning(AnswerShape shape);

/// A multiple choice. The views are valid until this thread reads the next record.
struct ChoiceQuestion {
  std::string_view question;
  std::vector<std::string_view> choices;  // 2 to 26
  std::vector<std::string_view> labels;   // as the record has them, or A, B, ...
  size_t right = 0;
};
/// The question with its labelled choices, as a user asks it; the answer is the right one's label.
std::string choice_text(const ChoiceQuestion& choice);
/// From a JSON record, padded like those of a RecordBatch, with the fields that `config` names: choices as a
/// list, or as ARC has them, {"text": [...], "label": [...]}. The answer is a number that counts from 0; or
/// else one of the labels; without labels, a letter or the choice itself. Throws BadRecord.
ChoiceQuestion read_choice(std::string_view json, const DataConfig& config);

/// What a JSON record holds: its data.format, and in words, such as "conversations (messages)".
struct RecordShape {
  RecordFormat format;
  std::string holds;
};
/// By its fields; nothing for a record that cannot be used.
std::optional<RecordShape> record_shape(const Record& record, const DataConfig& config);

/// Of JSON records, the text or the words of all turns, for what is made from texts alone. Throws BadRecord
/// for a record without any.
std::function<void(const Record&, std::string&)> make_json_texts(const DataConfig& config);

/// The tokens that a sentence of a pair stands between: <s> and </s>, or the end-of-text token where the
/// tokenizer has none.
struct SentenceMarks {
  explicit SentenceMarks(const Tokenizer& tokenizer);
  int32_t begin, end;
};

/// Pairs: the ids of each side between its tokenizer's marks. `json`: the record is ["source", "target"], or
/// an object with data.source_field and data.target_field.
std::unique_ptr<Renderer> make_pair_renderer(const DataConfig& config, const Tokenizer& source,
                                             const Tokenizer& target, bool json);

/// Of pairs, both sentences as they are written. Throws BadRecord for a record that is none.
std::function<void(const Record&, std::string&, std::string&)> make_pair_texts(const DataConfig& config,
                                                                               bool json);

/// Throws BadRecord for bytes that are no UTF-8 text: invalid, UTF-16, or with a NUL byte.
void demand_text(std::string_view bytes);

/// Appends a text between its marks to `out`, with the mask that `loss_after` asks for. Throws BadRecord when
/// it is empty or nothing of it would be learned.
void render_text(std::string_view text, const std::string& loss_after, const Tokenizer& tokenizer,
                 const TextMarks& marks, Rendered& out);

}  // namespace tightloop
