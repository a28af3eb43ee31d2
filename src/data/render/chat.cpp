#include "data/render/chat.h"

#include <algorithm>

#include "core/error.h"

namespace tightloop {

namespace {

constexpr std::string_view kContent = "{content}", kEnd = "{end}";
constexpr size_t kLongestName = 64;  // bytes of a token's name, so that a text of brackets costs no more

// The <...> or [...] that the text begins with; empty if it does not.
std::string_view bracketed(std::string_view text) {
  const char close = text[0] == '<' ? '>' : text[0] == '[' ? ']' : 0;
  const size_t end = close ? text.substr(0, kLongestName).find(close) : text.npos;
  return end == text.npos || end == 1 ? std::string_view() : text.substr(0, end + 1);
}

}  // namespace

void ChatConfig::describe(Fields& fields) {
  fields.add("form", form, "How turns are written");
  fields.add("system_prompt", system_prompt,
             "Put first in conversations that have no system prompt of their own");
  fields.add("begin", begin, "For `form: own`: what every conversation starts with");
  fields.add("system", system, "For `form: own`: a system turn, {content} in the place of the message");
  fields.add("user", user, "For `form: own`: a user turn, such as <|user|>{content}<|end|>");
  fields.add("assistant", assistant,
             "For `form: own`: an assistant turn; what follows {content} is learned up to {end}, or else up "
             "to the first control token");
  fields.add("answer_tokens", answer_tokens,
             "What becomes of a token of the tokenizer that an assistant's answer holds by its name, such as "
             "<think>");
}

ChatSpelling chat_spelling(const ChatConfig& config) {
  if (config.form == ChatForm::kOwn) return {config.begin, config.system, config.user, config.assistant, ""};
  if (config.form == ChatForm::kNanochat) {
    return {"<|bos|>", "", "<|user_start|>{content}<|user_end|>",
            "<|assistant_start|>{content}<|assistant_end|>{end}", "<|output_start|>{content}<|output_end|>"};
  }
  ChatSpelling chatml{"", "<|im_start|>system\n{content}<|im_end|>\n",
                      "<|im_start|>user\n{content}<|im_end|>\n",
                      "<|im_start|>assistant\n{content}<|im_end|>{end}\n",
                      "<|im_start|>user\n<tool_response>\n{content}\n</tool_response><|im_end|>\n"};
  // MiniMind's own training also learns the line end behind the end token.
  if (config.form == ChatForm::kMinimind)
    chatml.assistant = "<|im_start|>assistant\n{content}<|im_end|>\n{end}";
  return chatml;
}

// Collects ids and mask. Text on one side of a control token or of a change in the mask is encoded in one go,
// so that ids agree with those of the whole conversation encoded at once.
class ChatTemplate::Writer {
 public:
  Writer(const ChatTemplate& chat, std::vector<int32_t>& ids, std::vector<uint8_t>* mask)
      : tokenizer_(chat.tokenizer_),
        answers_(chat.answer_tokens_ == AnswerTokens::kParse ? SpecialText::kParse : SpecialText::kText),
        ids_(ids),
        mask_(mask) {
    pending_.clear();
  }
  ~Writer() = default;

  void text(std::string_view text) { pending_.append(text); }
  void literal(const Literal& literal) {
    for (const Piece& piece : literal) {
      if (piece.control < 0) {
        text(piece.text);
      } else {
        flush();
        ids_.push_back(piece.control);
        if (mask_) mask_->push_back(learn_);
      }
    }
  }
  void learn(bool learn) {
    if (learn == learn_) return;
    flush();
    learn_ = learn;
  }
  void flush() {
    if (pending_.empty()) return;
    tokenizer_.encode(pending_, ids_, learn_ ? answers_ : SpecialText::kText);
    if (mask_) mask_->resize(ids_.size(), learn_);
    pending_.clear();
  }

 private:
  const Tokenizer& tokenizer_;
  const SpecialText answers_;
  std::vector<int32_t>& ids_;
  std::vector<uint8_t>* mask_;
  bool learn_ = false;
  static thread_local std::string pending_;  // kept between conversations for its memory
};

thread_local std::string ChatTemplate::Writer::pending_;

ChatForm chat_form_of(const Tokenizer& tokenizer) {
  return tokenizer.token_id("<|user_start|>") ? ChatForm::kNanochat : ChatForm::kChatml;
}

ChatTemplate::ChatTemplate(const ChatConfig& config, const Tokenizer& tokenizer)
    : tokenizer_(tokenizer),
      system_prompt_(config.system_prompt),
      form_(config.form),
      answer_tokens_(config.answer_tokens) {
  const ChatSpelling spelling = chat_spelling(config);
  begin_ = parse(spelling.begin);
  system_joins_user_ = spelling.system.empty();
  if (!system_joins_user_)
    forms_[static_cast<int>(Role::kSystem)] = parse_form(spelling.system, "chat.system");
  forms_[static_cast<int>(Role::kUser)] = parse_form(spelling.user, "chat.user");
  forms_[static_cast<int>(Role::kAssistant)] = parse_form(spelling.assistant, "chat.assistant");
  has_tool_turns_ = !spelling.tool.empty();
  if (has_tool_turns_) forms_[static_cast<int>(Role::kTool)] = parse_form(spelling.tool, "chat.form");
  if (config.form == ChatForm::kNanochat) {
    code_begin_ = parse("<|python_start|>"), code_end_ = parse("<|python_end|>");
    output_begin_ = parse("<|output_start|>"), output_end_ = parse("<|output_end|>");
  }
}

// Finds <...> and [...] that the tokenizer knows as tokens; <|...|> must be known.
ChatTemplate::Literal ChatTemplate::parse(std::string_view text) {
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

ChatTemplate::Form ChatTemplate::parse_form(const std::string& text, const char* key) {
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

bool ChatTemplate::is_own(int32_t id) const { return std::ranges::find(controls_, id) != controls_.end(); }

// The first token by name in a text that is wanted(id, whether plain text becomes that token).
template <class Wanted>
std::string_view ChatTemplate::find_token(std::string_view text, const Wanted& wanted) const {
  for (size_t at = 0; (at = text.find_first_of("<[", at)) != text.npos; ++at) {
    const std::string_view name = bracketed(text.substr(at));
    const auto id = name.empty() ? std::nullopt : tokenizer_.token_id(name);
    if (!id) continue;
    const std::vector<int32_t> plain = tokenizer_.encode(name, SpecialText::kText);
    if (wanted(*id, std::ranges::find(plain, *id) != plain.end())) return name;
  }
  return {};
}

std::string_view ChatTemplate::smuggled_token(std::string_view text) const {
  return find_token(text, [&](int32_t id, bool comes) { return comes && is_own(id); });
}

BadKind ChatTemplate::check(std::span<const Message> messages, std::string& why) const {
  const Message* waiting = nullptr;  // a system turn that waits for the user's
  for (const Message& message : messages) {
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

void ChatTemplate::write(std::span<const Message> messages, Writer& writer) const {
  writer.literal(begin_);
  std::string_view joined = system_joins_user_ ? system_prompt_ : std::string_view();
  const bool has_system = !messages.empty() && messages[0].role == Role::kSystem;
  if (!system_prompt_.empty() && !has_system && !system_joins_user_) {
    const Form& form = forms_[static_cast<int>(Role::kSystem)];
    writer.literal(form.before);
    writer.text(system_prompt_);
    writer.literal(form.learned);
    writer.literal(form.after);
  }
  for (const Message& message : messages) {
    if (message.role == Role::kSystem && system_joins_user_) {
      joined = message.text;
      continue;
    }
    const Form& form = forms_[static_cast<int>(message.role)];
    const bool assistant = message.role == Role::kAssistant;
    if (message.opens) writer.literal(form.before);
    if (message.role == Role::kUser && !joined.empty()) {
      writer.text(joined);
      writer.text("\n\n");
      joined = {};
    }
    const bool code = message.part == Message::Part::kCode, output = message.part == Message::Part::kOutput;
    writer.learn(assistant && !output);
    if (code) writer.literal(code_begin_);
    if (output) writer.literal(output_begin_);
    writer.text(message.text);
    if (code) writer.literal(code_end_);
    if (output) writer.literal(output_end_);
    writer.learn(assistant && message.closes);
    if (message.closes) writer.literal(form.learned);
    writer.learn(false);
    if (message.closes) writer.literal(form.after);
  }
}

void ChatTemplate::render(std::span<const Message> messages, std::vector<int32_t>& ids,
                          std::vector<uint8_t>& mask) const {
  Writer writer(*this, ids, &mask);
  write(messages, writer);
  writer.flush();
}

std::vector<int32_t> ChatTemplate::prompt(std::span<const Message> messages) const {
  std::vector<int32_t> ids;
  Writer writer(*this, ids, nullptr);
  write(messages, writer);
  writer.literal(forms_[static_cast<int>(Role::kAssistant)].before);
  writer.flush();
  return ids;
}

int32_t ChatTemplate::end_of_turn() const {
  for (const Piece& piece : forms_[static_cast<int>(Role::kAssistant)].learned)
    if (piece.control >= 0) return piece.control;
  return -1;
}

}  // namespace tightloop
