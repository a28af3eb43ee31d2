#include <algorithm>

#include "core/error.h"
#include "data/render/chat_writer.h"

namespace tightloop {

namespace {

constexpr std::string_view kContent = "{content}", kEnd = "{end}";

constexpr const char* kWhoReads = ", and chat.form qwen3 or minimind writes it";

/// Control tokens that the form writes itself, whatever the messages say.
class SpelledChat : public ChatTemplate::Writer {
 public:
  SpelledChat(ChatForm form, const ChatConfig& config, const Tokenizer& tokenizer);

  BadKind check(const Conversation& conversation, std::string& why) const override;
  std::string_view smuggled_token(std::string_view text) const override;
  void render(const Conversation& conversation, std::vector<int32_t>& ids,
              std::vector<uint8_t>& mask) const override;
  std::vector<int32_t> prompt(const Conversation& conversation, bool answers_at_once) const override;
  int32_t end_of_turn() const override;
  std::string description() const override { return std::string(name_of(form_)); }

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
  class Sink;

  Literal parse(std::string_view text);
  Form parse_form(const std::string& text, const char* key);
  template <class Wanted>
  std::string_view find_token(std::string_view text, const Wanted& wanted) const;
  bool is_own(int32_t id) const;
  void write(std::span<const Message> messages, Sink& sink) const;

  const Tokenizer& tokenizer_;
  const ChatForm form_;
  const AnswerTokens answer_tokens_;
  const ChatLearn learn_;
  bool system_joins_user_ = false;  // a system prompt stands at the head of the first user turn
  bool has_tool_turns_ = true;
  std::vector<int32_t> controls_;  // of the form
  Literal begin_, code_begin_, code_end_, output_begin_, output_end_;
  Form forms_[4];  // by role
};

// Collects ids and mask. Text on one side of a control token or of a change in the mask is encoded in one go,
// so that ids agree with those of the whole conversation encoded at once.
class SpelledChat::Sink {
 public:
  Sink(const SpelledChat& chat, std::vector<int32_t>& ids, std::vector<uint8_t>* mask)
      : tokenizer_(chat.tokenizer_),
        answers_(chat.answer_tokens_ == AnswerTokens::kParse ? SpecialText::kParse : SpecialText::kText),
        everything_(chat.learn_ == ChatLearn::kAll),
        ids_(ids),
        mask_(mask) {
    pending_.clear();
  }

  void text(std::string_view text) { pending_.append(text); }
  void literal(const Literal& literal) {
    for (const Piece& piece : literal) {
      if (piece.control < 0) {
        text(piece.text);
      } else {
        flush();
        ids_.push_back(piece.control);
        if (mask_) mask_->push_back(everything_ || learn_);
      }
    }
  }
  /// What follows is said by the assistant or not, and to be learned or not.
  void speak(bool answer, bool learn) {
    if (answer == answer_ && learn == learn_) return;
    flush();
    answer_ = answer, learn_ = learn;
  }
  void flush() {
    if (pending_.empty()) return;
    tokenizer_.encode(pending_, ids_, answer_ ? answers_ : SpecialText::kText);
    if (mask_) mask_->resize(ids_.size(), everything_ || learn_);
    pending_.clear();
  }

 private:
  const Tokenizer& tokenizer_;
  const SpecialText answers_;
  const bool everything_;
  bool answer_ = false, learn_ = false;
  std::vector<int32_t>& ids_;
  std::vector<uint8_t>* mask_;
  static thread_local std::string pending_;  // kept between conversations for its memory
};

thread_local std::string SpelledChat::Sink::pending_;

SpelledChat::SpelledChat(ChatForm form, const ChatConfig& config, const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), form_(form), answer_tokens_(config.answer_tokens), learn_(config.learn) {
  const ChatSpelling spelling = chat_spelling(config, tokenizer);
  begin_ = parse(spelling.begin);
  system_joins_user_ = spelling.system.empty();
  if (!system_joins_user_)
    forms_[static_cast<int>(Role::kSystem)] = parse_form(spelling.system, "chat.system");
  forms_[static_cast<int>(Role::kUser)] = parse_form(spelling.user, "chat.user");
  forms_[static_cast<int>(Role::kAssistant)] = parse_form(spelling.assistant, "chat.assistant");
  has_tool_turns_ = !spelling.tool.empty();
  if (has_tool_turns_) forms_[static_cast<int>(Role::kTool)] = parse_form(spelling.tool, "chat.form");
  if (form == ChatForm::kNanochat) {
    code_begin_ = parse("<|python_start|>"), code_end_ = parse("<|python_end|>");
    output_begin_ = parse("<|output_start|>"), output_end_ = parse("<|output_end|>");
  }
}

// Finds <...> and [...] that the tokenizer knows as tokens; <|...|> must be known.
SpelledChat::Literal SpelledChat::parse(std::string_view text) {
  Literal pieces;
  std::string plain;
  while (!text.empty()) {
    const std::string_view name = bracketed(text);
    const auto id = name.empty() ? std::nullopt : tokenizer_.token_id(name);
    if (!id && name.starts_with("<|") && name.ends_with("|>")) {
      throw usage_error(
          "the chat template needs the token '{}', which the tokenizer does not have. Choose another "
          "chat.form, or a tokenizer with it.",
          name);
    }
    if (id) {
      if (!plain.empty()) pieces.push_back({-1, std::exchange(plain, {})});
      pieces.push_back({*id, {}});
      controls_.push_back(*id);
      text.remove_prefix(name.size());
    } else {
      plain += text[0];
      text.remove_prefix(1);
    }
  }
  if (!plain.empty()) pieces.push_back({-1, plain});
  return pieces;
}

SpelledChat::Form SpelledChat::parse_form(const std::string& text, const char* key) {
  const size_t content = text.find(kContent);
  if (content == std::string::npos) throw usage_error("{} ('{}') has no {{content}}.", key, text);
  Form form;
  form.before = parse(std::string_view(text).substr(0, content));
  std::string_view after = std::string_view(text).substr(content + kContent.size());
  if (const size_t end = after.find(kEnd); end != after.npos) {
    form.learned = parse(after.substr(0, end));
    form.after = parse(after.substr(end + kEnd.size()));
    return form;
  }
  form.after = parse(after);
  const auto control =
      std::ranges::find_if(form.after, [](const Piece& piece) { return piece.control >= 0; });
  if (control == form.after.end()) {
    form.learned = std::exchange(form.after, {});
  } else {
    form.learned.assign(form.after.begin(), control + 1);
    form.after.erase(form.after.begin(), control + 1);
  }
  return form;
}

bool SpelledChat::is_own(int32_t id) const { return std::ranges::find(controls_, id) != controls_.end(); }

// The first token by name in a text that is wanted(id, whether plain text becomes that token).
template <class Wanted>
std::string_view SpelledChat::find_token(std::string_view text, const Wanted& wanted) const {
  for (size_t at = 0; (at = text.find_first_of("<[", at)) != text.npos; ++at) {
    const std::string_view name = bracketed(text.substr(at));
    const auto id = name.empty() ? std::nullopt : tokenizer_.token_id(name);
    if (!id) continue;
    const std::vector<int32_t> plain = tokenizer_.encode(name, SpecialText::kText);
    if (wanted(*id, std::ranges::find(plain, *id) != plain.end())) return name;
  }
  return {};
}

std::string_view SpelledChat::smuggled_token(std::string_view text) const {
  return find_token(text, [&](int32_t id, bool comes) { return comes && is_own(id); });
}

BadKind SpelledChat::check(const Conversation& conversation, std::string& why) const {
  if (!conversation.tools.empty() || !conversation.variables.empty()) {
    why = lost_field("the record", conversation.tools.empty() ? "chat_template_kwargs" : "tools") + kWhoReads;
    return BadKind::kUnknownField;
  }
  const Message* waiting = nullptr;  // a system turn that waits for the user's
  for (const Message& message : conversation.messages) {
    const std::string_view lost = message.thinking && !message.thinking->empty()
                                      ? "reasoning_content"
                                      : message.field_names.substr(0, message.field_names.find('\0'));
    if (!lost.empty()) {
      why = lost_field("a message", lost) +
            (lost == "reasoning_content" || lost == "tool_calls" ? kWhoReads : "");
      return BadKind::kUnknownField;
    }
    const bool answer = message.role == Role::kAssistant && message.part != Message::Part::kOutput;
    if (message.part != Message::Part::kText && code_begin_.empty()) {
      why = fmt::format("chat.form {} has no tokens around code and its output", name_of(form_));
      return BadKind::kNotInTemplate;
    }
    if (message.role == Role::kTool && !has_tool_turns_) {
      why = fmt::format("chat.form {} has no form for a turn of a tool", name_of(form_));
      return BadKind::kNotInTemplate;
    }
    if (system_joins_user_) {
      if (waiting && message.role != Role::kUser) break;
      waiting = message.role == Role::kSystem ? &message : nullptr;
    }
    if (answer && answer_tokens_ == AnswerTokens::kParse) continue;
    std::string_view token = smuggled_token(message.text);
    if (token.empty() && answer && answer_tokens_ == AnswerTokens::kRefuse)
      token = find_token(message.text, [](int32_t, bool comes) { return !comes; });
    if (token.empty()) continue;
    why =
        answer
            ? fmt::format("an answer holds the control token '{}'; chat.answer_tokens says what to do", token)
            : fmt::format("a turn holds the control token '{}', which the tokenizer cannot spell out", token);
    return BadKind::kControlToken;
  }
  if (!waiting) return BadKind::kNone;
  why = fmt::format("chat.form {} puts a system turn into the user's turn behind it, and none follows",
                    name_of(form_));
  return BadKind::kNotInTemplate;
}

void SpelledChat::write(std::span<const Message> messages, Sink& sink) const {
  sink.literal(begin_);
  std::string_view joined;
  size_t last = messages.size();  // where the assistant's last turn begins
  while (last > 0 && !(messages[--last].role == Role::kAssistant && messages[last].opens)) {
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if (message.role == Role::kSystem && system_joins_user_) {
      joined = message.text;
      continue;
    }
    const Form& form = forms_[static_cast<int>(message.role)];
    const bool assistant = message.role == Role::kAssistant;
    const bool learned = assistant && (learn_ != ChatLearn::kLast || i >= last);
    if (message.opens) sink.literal(form.before);
    if (message.role == Role::kUser && !joined.empty()) {
      sink.text(joined);
      sink.text("\n\n");
      joined = {};
    }
    const bool code = message.part == Message::Part::kCode, output = message.part == Message::Part::kOutput;
    sink.speak(assistant && !output, learned && !output);
    if (code) sink.literal(code_begin_);
    if (output) sink.literal(output_begin_);
    sink.text(message.text);
    if (code) sink.literal(code_end_);
    if (output) sink.literal(output_end_);
    sink.speak(assistant && message.closes, learned && message.closes);
    if (message.closes) sink.literal(form.learned);
    sink.speak(false, false);
    if (message.closes) sink.literal(form.after);
  }
}

void SpelledChat::render(const Conversation& conversation, std::vector<int32_t>& ids,
                         std::vector<uint8_t>& mask) const {
  Sink sink(*this, ids, &mask);
  write(conversation.messages, sink);
  sink.flush();
}

std::vector<int32_t> SpelledChat::prompt(const Conversation& conversation, bool) const {
  std::vector<int32_t> ids;
  Sink sink(*this, ids, nullptr);
  write(conversation.messages, sink);
  sink.literal(forms_[static_cast<int>(Role::kAssistant)].before);
  sink.flush();
  return ids;
}

int32_t SpelledChat::end_of_turn() const {
  for (const Piece& piece : forms_[static_cast<int>(Role::kAssistant)].learned)
    if (piece.control >= 0) return piece.control;
  return -1;
}

}  // namespace

std::unique_ptr<const ChatTemplate::Writer> make_spelled_chat(ChatForm form, const ChatConfig& config,
                                                              const Tokenizer& tokenizer) {
  return std::make_unique<const SpelledChat>(form, config, tokenizer);
}

}  // namespace tightloop
