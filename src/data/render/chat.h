#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "data/read/record.h"
#include "tokenizer/tokenizer.h"

namespace tightloop {

enum class Role : uint8_t { kSystem, kUser, kAssistant, kTool };

/// A turn of a conversation, or a part of one: `opens` and `closes` tell whether the turn begins and ends
/// here. Code that the assistant runs is learned like its words; what the code printed is only read.
struct Message {
  enum class Part : uint8_t { kText, kCode, kOutput };

  Role role = Role::kUser;
  std::string_view text;
  Part part = Part::kText;
  bool opens = true, closes = true;
};

/// How turns are written.
enum class ChatForm { kChatml, kMinimind, kNanochat, kOwn };
template <>
inline constexpr auto kChoices<ChatForm> = std::to_array<Choice<ChatForm>>({
    {ChatForm::kChatml, "chatml", "as Qwen"},
    {ChatForm::kMinimind, "minimind", "chatml, learning the last line end too"},
    {ChatForm::kNanochat, "nanochat"},
    {ChatForm::kOwn, "own", "as chat.begin, system, user and assistant say"},
});

/// What becomes of a token of the tokenizer that an answer holds by its name, such as <think>.
enum class AnswerTokens { kRefuse, kText, kParse };
template <>
inline constexpr auto kChoices<AnswerTokens> = std::to_array<Choice<AnswerTokens>>({
    {AnswerTokens::kRefuse, "refuse", "the record is bad"},
    {AnswerTokens::kText, "text", "its name is learned as plain text"},
    {AnswerTokens::kParse, "parse", "the token is learned"},
});

/// The section `chat`: how conversations become tokens.
struct ChatConfig {
  ChatForm form = ChatForm::kChatml;
  std::string system_prompt;
  std::string begin, system, user, assistant;
  AnswerTokens answer_tokens = AnswerTokens::kRefuse;

  void describe(Fields& fields);
};

/// How a form of chat writes each turn: {content} stands for the message, {end} for where learning ends. An
/// empty `system` means that a system prompt stands at the head of the first user turn; an empty `tool`, that
/// there are no turns of tools.
struct ChatSpelling {
  std::string begin, system, user, assistant, tool;
};
ChatSpelling chat_spelling(const ChatConfig& config);
/// The form whose control tokens a tokenizer has; chatml where it has none of another's.
ChatForm chat_form_of(const Tokenizer& tokenizer);

/// A chat template, bound to a tokenizer. Control tokens come from the template alone: whatever a message
/// says is encoded as plain text (but for answers, with chat.answer_tokens `parse`). Safe to use from many
/// threads.
class ChatTemplate {
 public:
  /// A usage error when the tokenizer lacks a control token of the template.
  ChatTemplate(const ChatConfig& config, const Tokenizer& tokenizer);

  /// Whether a conversation can be written as it was meant; if not, the kind of the fault, and the reason in
  /// `why`: a control token in an answer, a turn or a part that the template has no form for.
  BadKind check(std::span<const Message> messages, std::string& why) const;
  /// A control token of the template that would come of `text`, which somebody else wrote; empty: none. Only
  /// tokenizers that cannot spell out their tokens (SentencePiece's own symbols) make one.
  std::string_view smuggled_token(std::string_view text) const;

  /// Appends a conversation. The mask is 1 exactly on what the assistant must produce, its end token
  /// included.
  void render(std::span<const Message> messages, std::vector<int32_t>& ids, std::vector<uint8_t>& mask) const;
  /// The same, up to where the assistant's next turn starts: what a model is asked with.
  std::vector<int32_t> prompt(std::span<const Message> messages) const;
  /// The token that ends an assistant's turn; -1 if the template has none.
  int32_t end_of_turn() const;

 private:
  struct Piece {
    int32_t control = -1;  // a token, or else text
    std::string text;
  };
  using Literal = std::vector<Piece>;
  struct Form {
    Literal before, learned,
        after;  // around the content; `learned` is what the assistant must produce after it
  };
  class Writer;

  Literal parse(std::string_view text);
  Form parse_form(const std::string& text, const char* key);
  template <class Wanted>
  std::string_view find_token(std::string_view text, const Wanted& wanted) const;
  bool is_own(int32_t id) const;
  void write(std::span<const Message> messages, Writer& writer) const;

  const Tokenizer& tokenizer_;
  std::string system_prompt_;
  ChatForm form_;
  AnswerTokens answer_tokens_;
  bool system_joins_user_ = false;  // a system prompt stands at the head of the first user turn
  bool has_tool_turns_ = true;
  std::vector<int32_t> controls_;  // of the template
  Literal begin_, code_begin_, code_end_, output_begin_, output_end_;
  Form forms_[4];  // by role
};

}  // namespace tightloop
