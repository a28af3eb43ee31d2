#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "data/read/record.h"
#include "tokenizer/tokenizer.h"

namespace tightloop {

enum class Role : uint8_t { kSystem, kUser, kAssistant, kTool };
/// "system", "user", "assistant", "tool".
std::string_view role_name(Role role);

/// A turn of a conversation, or a part of one: `opens` and `closes` tell whether the turn begins and ends
/// here. Code that the assistant runs is learned like its words; what the code printed is only read.
struct Message {
  enum class Part : uint8_t { kText, kCode, kOutput };

  Role role = Role::kUser;
  std::string_view text{};
  Part part = Part::kText;
  bool opens = true, closes = true;

  // What templates of models read besides.
  std::string_view called{};                   // the role as the record names it; empty: role_name(role)
  std::optional<std::string_view> thinking{};  // reasoning_content
  std::string_view content{};  // JSON, where it is no text: a list of parts, null; "absent": there is none
  std::string_view fields{};   // other fields that say something: a JSON object, or empty
  std::string_view field_names{};  // of those that may not be lost, each with a NUL behind it
};

/// What a record says. The views are valid as long as the record's reader says.
struct Conversation {
  Conversation() = default;
  Conversation(std::span<const Message> turns) : messages(turns) {}
  Conversation(const std::vector<Message>& turns) : messages(turns) {}

  std::span<const Message> messages{};
  std::string_view tools{};           // a JSON list; empty: none
  std::string_view variables{};       // of the template: a JSON object; empty: none
  std::string_view variable_names{};  // of those that may not be lost, each with a NUL behind it
  uint64_t hash = 0;                  // of the record: what decides where only a share of them is changed
};

inline constexpr std::string_view kAbsent = "absent";  // of Message::content

/// How turns are written.
enum class ChatForm { kAuto, kTemplate, kChatml, kMinimind, kQwen3, kLlama3, kNanochat, kOwn };
template <>
inline constexpr auto kChoices<ChatForm> = std::to_array<Choice<ChatForm>>({
    {ChatForm::kAuto, "auto", "the chat template beside the tokenizer; without one, by its control tokens"},
    {ChatForm::kTemplate, "template", "the chat template beside the tokenizer, or chat.template"},
    {ChatForm::kChatml, "chatml"},
    {ChatForm::kMinimind, "minimind", "with thinking and tools, learning the last line end too"},
    {ChatForm::kQwen3, "qwen3", "with thinking and tools"},
    {ChatForm::kLlama3, "llama3", "as Llama 3.1, with tools"},
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

/// Which tokens of a conversation are learned.
enum class ChatLearn { kAssistant, kLast, kAll };
template <>
inline constexpr auto kChoices<ChatLearn> = std::to_array<Choice<ChatLearn>>({
    {ChatLearn::kAssistant, "assistant", "what the assistant produces, in all of its turns"},
    {ChatLearn::kLast, "last", "the same of its last turn alone"},
    {ChatLearn::kAll, "all", "everything"},
});

/// The section `chat`: how conversations become tokens.
struct ChatConfig {
  ChatForm form = ChatForm::kAuto;
  std::string template_path;
  std::string system_prompt;
  std::string begin, system, user, assistant;
  AnswerTokens answer_tokens = AnswerTokens::kRefuse;
  ChatLearn learn = ChatLearn::kAssistant;
  bool learn_thinking = true;
  double empty_thinking = 1;
  std::vector<std::string> system_prompts;
  double system_share = 0;
  std::string today;

  void describe(Fields& fields);
};

/// The same for questions: every answer alike, whatever shares and masks say of training.
ChatConfig for_questions(ChatConfig config);

/// How a form of chat writes each turn: {content} stands for the message, {end} for where learning ends. An
/// empty `system` means that a system prompt stands at the head of the first user turn; an empty `tool`, that
/// there are no turns of tools.
struct ChatSpelling {
  std::string begin, system, user, assistant, tool;
};
/// Of templates, about: what their turns look like by the tokenizer's control tokens; empty where those tell
/// nothing.
ChatSpelling chat_spelling(const ChatConfig& config, const Tokenizer& tokenizer);
/// The form that `auto` stands for. A usage error for `template` where the tokenizer has none.
ChatForm resolve_form(const ChatConfig& config, const Tokenizer& tokenizer);

/// A form of chat, bound to a tokenizer. Safe to use from many threads.
///
/// Forms that are spelled (chatml, nanochat, own) take control tokens from the form alone: whatever a message
/// says is encoded as plain text (but for answers, with chat.answer_tokens `parse`). Templates (template,
/// minimind, qwen3, llama3) give the ids that transformers gives of the rendered text.
class ChatTemplate {
 public:
  /// A usage error when the tokenizer lacks a control token of the form, a data error when its template
  /// cannot be read.
  ChatTemplate(const ChatConfig& config, const Tokenizer& tokenizer);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;

  /// Whether a conversation can be written as it was meant; if not, the kind of the fault, and the reason in
  /// `why`: a control token in an answer, a turn, a part or a field that the form has no place for.
  BadKind check(const Conversation& conversation, std::string& why) const;
  /// A control token of the form that would come of `text`, which somebody else wrote; empty: none. Only
  /// tokenizers that cannot spell out their tokens (SentencePiece's own symbols) make one.
  std::string_view smuggled_token(std::string_view text) const;

  /// Appends a conversation. The mask is 1 on what chat.learn says: by default exactly what the assistant
  /// must produce, its end token included. Throws BadRecord where a template refuses it.
  void render(const Conversation& conversation, std::vector<int32_t>& ids, std::vector<uint8_t>& mask) const;
  /// The same, up to where the assistant's next turn starts: what a model is asked with. `answers_at_once`:
  /// with the empty <think> block that a template writes before an answer without thinking.
  std::vector<int32_t> prompt(const Conversation& conversation, bool answers_at_once = false) const;
  /// The token that ends an assistant's turn; -1 if the form has none.
  int32_t end_of_turn() const;
  /// What it is, for people: "qwen3", "chat_template.jinja (by the built-in form qwen3)".
  std::string description() const;

  class Writer;

 private:
  std::string_view drawn_prompt(uint64_t hash) const;

  std::unique_ptr<const Writer> writer_;
  std::string system_prompt_;
  std::vector<std::string> system_prompts_;
  double system_share_;
};

}  // namespace tightloop
