#include <algorithm>
#include <ctime>
#include <deque>
#include <mutex>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "data/render/built_in_templates.h"
#include "data/render/chat_text.h"
#include "data/render/chat_writer.h"
#include "data/render/generated_answers.h"
#include "tokenizer/jinja/jinja_template.h"
#include "tokenizer/jinja/template_files.h"
#include "tokenizer/unicode/python_text.h"

namespace tightloop {

namespace {

std::time_t noon_of(const std::string& day) {
  if (day.empty()) return std::time(nullptr);
  std::tm local{};
  const char* const end = ::strptime(day.c_str(), "%Y-%m-%d", &local);
  if (!end || *end) throw usage_error("chat.today '{}' is not a day such as 2026-01-31.", day);
  local.tm_hour = 12;
  local.tm_isdst = -1;
  return std::mktime(&local);
}

ChatTemplateFiles files_of(ChatForm form, const Tokenizer& tokenizer) {
  if (form == ChatForm::kTemplate) return tokenizer.chat();
  ChatTemplateFiles files;
  files.source = fmt::format("chat.form {}", name_of(form));
  files.templates["default"] = built_in_template(form);
  files.tokens = tokenizer.chat().tokens;
  return files;
}

/// Takes the first of names with a NUL behind each.
std::string_view next_name(std::string_view& rest) {
  const std::string_view name = rest.substr(0, rest.find('\0'));
  rest.remove_prefix(name.size() + 1);
  return name;
}

/// The quick form of a template; nothing where the tokenizer lacks its tokens, which only the template's own
/// rules for that can tell.
std::optional<QuickChat> quick_for(const std::string& jinja, const std::string& begin, std::time_t now,
                                   const Tokenizer& tokenizer) {
  auto quick = quick_form_of(jinja, begin, now);
  if (!quick || quick->form == ChatForm::kMinimind) return quick;
  if (!tokenizer.token_id(quick->form == ChatForm::kLlama3 ? "<|eot_id|>" : "<|im_end|>")) return {};
  return quick;
}

/// A template in Jinja. The ids are those of the rendered text.
class TemplateChat : public ChatTemplate::Writer {
 public:
  TemplateChat(ChatForm form, const ChatConfig& config, const Tokenizer& tokenizer)
      : tokenizer_(tokenizer),
        files_(files_of(form, tokenizer)),
        now_(noon_of(config.today.empty() ? files_.day : config.today)),
        learn_(config.learn),
        learn_thinking_(config.learn_thinking),
        empty_thinking_(config.empty_thinking),
        jinja_(files_.choose(false)),
        usual_(jinja_, files_.source),
        quick_(quick_for(jinja_, files_.token("bos_token"), now_, tokenizer)) {
    if (const std::string& other = files_.choose(true); other != jinja_) {
      with_tools_.emplace(other, files_.source);
      jinja_ += other;
    }
    if (quick_ && quick_->form == ChatForm::kMinimind) {
      minimind_begin_ = encoded("<|im_start|>assistant\n");
      minimind_end_ = encoded("<|im_end|>\n");
    }
    demand_tokens(form);
    encoded("x");
    probe();
  }

  BadKind check(const Conversation& conversation, std::string& why) const override {
    if (!conversation.tools.empty() && !names(jinja_, "tools")) {
      why = lost_field("the record", "tools");
      return BadKind::kUnknownField;
    }
    for (std::string_view rest = conversation.variable_names; !rest.empty();) {
      const std::string_view name = next_name(rest);
      if (names(jinja_, name)) continue;
      why = lost_field("chat_template_kwargs", name);
      return BadKind::kUnknownField;
    }
    for (const Message& message : conversation.messages) {
      if (message.part != Message::Part::kText) {
        why = "a chat template has no tokens around code and its output";
        return BadKind::kNotInTemplate;
      }
      if (message.thinking && !message.thinking->empty() &&
          (message.role != Role::kAssistant || !names(jinja_, "reasoning_content"))) {
        why = lost_field("a message", "reasoning_content");
        return BadKind::kUnknownField;
      }
      for (std::string_view rest = message.field_names; !rest.empty();) {
        const std::string_view name = next_name(rest);
        if (names_field(name)) continue;
        why = lost_field("a message", name);
        return BadKind::kUnknownField;
      }
    }
    return BadKind::kNone;
  }

  std::string_view smuggled_token(std::string_view) const override { return {}; }

  void render(const Conversation& conversation, std::vector<int32_t>& ids,
              std::vector<uint8_t>& mask) const override {
    ChatText chat;
    write(conversation, false, chat);
    if (empty_thinking_ < 1 &&
        !in_share(hash64("empty thinking " + hex64(conversation.hash)), empty_thinking_))
      chat.drop_empty_thinking();
    const size_t first = ids.size();
    std::vector<uint32_t> ends;
    std::vector<int32_t> own;
    tokenizer_.encode_with_ends(chat.text, own, ends);
    ids.insert(ids.end(), own.begin(), own.end());
    mask.resize(ids.size(), learn_ == ChatLearn::kAll);
    if (learn_ != ChatLearn::kAll) {
      if (minimind_begin_.empty()) {
        mark(learned(chat), ends, 1, mask.data() + first);
      } else {
        mark_as_minimind(own, mask.data() + first);
      }
    }
    if (!learn_thinking_) mark(chat.thinking(), ends, 0, mask.data() + first);
    if (std::ranges::find(mask, uint8_t{1}) == mask.end())
      throw BadRecord{
          BadKind::kNothingToLearn,
          fmt::format("{} writes nothing of the assistant's turns that could be told apart", files_.source)};
  }

  std::vector<int32_t> prompt(const Conversation& conversation, bool answers_at_once) const override {
    ChatText chat;
    if (!quick_ || !quick_->write(conversation, true, chat)) chat.text = rendered(conversation, true).text;
    if (answers_at_once && thinks_first_ && !chat.text.ends_with(kEmptyThinking)) chat.text += kEmptyThinking;
    return encoded(chat.text);
  }

  int32_t end_of_turn() const override { return end_; }

  std::string description() const override {
    if (!quick_) return files_.source;
    const std::string_view form = name_of(quick_->form);
    if (files_.source == fmt::format("chat.form {}", form)) return std::string(form);
    return fmt::format("{} (known: the form {})", files_.source, form);
  }

 private:
  std::vector<int32_t> encoded(std::string_view text) const {
    std::vector<int32_t> ids;
    std::vector<uint32_t> ends;
    if (!tokenizer_.encode_with_ends(text, ids, ends))
      throw usage_error("{} is a chat template, and this tokenizer cannot tell its control tokens from text.",
                        files_.source);
    return ids;
  }

  /// Of the built-in forms: without its control tokens a tokenizer would spell them out.
  void demand_tokens(ChatForm form) const {
    if (form == ChatForm::kTemplate) return;
    for (const char* name : {"<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>",
                             "<|end_header_id|>", "<|eot_id|>"})
      if (names_token(name) && !tokenizer_.token_id(name))
        throw usage_error(
            "the chat template needs the token '{}', which the tokenizer does not have. Choose another "
            "chat.form, or a tokenizer with it.",
            name);
  }
  /// Names that calls and tools have as well are looked for at a message.
  bool names_field(std::string_view name) const {
    if (name != "name" && name != "function" && name != "arguments" && name != "id" && name != "type")
      return names(jinja_, name);
    for (const char* at :
         {"message.{}", "message['{}']", "message[\"{}\"]", "message.get('{}'", "msg.{}", "msg['{}']"})
      if (jinja_.find(fmt::format(fmt::runtime(at), name)) != jinja_.npos) return true;
    return false;
  }
  bool names_token(std::string_view name) const { return jinja_.find(name) != jinja_.npos; }

  /// What the template writes where the assistant is to answer, what ends a turn, and how it takes lists.
  void probe() {
    constexpr std::string_view kQuestion = "A question 4711.", kAnswer = "An answer 7319.",
                               kPart = "A part 1847.";
    constexpr const char* kTools =
        R"([{"type":"function","function":{"name":"f","description":"f","parameters":{"type":"object","properties":{}}}}])";
    constexpr std::string_view kList = R"([{"type":"text","text":"A part 1847."}])";
    const Message turns[] = {
        {Role::kSystem, "A rule 2953."}, {Role::kUser, kQuestion}, {Role::kAssistant, kAnswer}};
    bool silent = false;
    Conversation asked;
    for (const auto& [left_out, tools] : {std::pair{size_t{1}, ""}, {0, ""}, {1, kTools}, {0, kTools}}) {
      asked.messages = std::span(turns).subspan(left_out), asked.tools = tools;
      try {
        silent = !probe_turn(asked, kQuestion, kAnswer);
        break;
      } catch (const Error&) {
        // It may want a system prompt, or tools.
      }
    }
    if (silent) throw data_error("{} does not write what the assistant says ('content').", files_.source);
    try {
      Message list{Role::kUser, kPart};
      list.content = kList;
      takes_lists_ = true;
      asked.messages = std::span(&list, 1);
      const std::string text = rendered(asked, false).text;
      const std::string_view before = std::string_view(text).substr(0, text.find(kPart));
      takes_lists_ = before.size() < text.size() && !before.ends_with("'text': '") &&
                     !before.ends_with(R"("text": ")") && !before.ends_with(R"("text":")");
    } catch (const Error&) {
      takes_lists_ = false;
    }
    if (end_ < 0)
      if (const auto id = tokenizer_.token_id(files_.token("eos_token"))) end_ = *id;
  }

  /// Of a question and its answer, the last two messages. False where the answer is not written.
  bool probe_turn(const Conversation& asked, std::string_view question, std::string_view answer) {
    const auto answered = rendered(asked, false);
    const size_t last = asked.messages.size() - 1;
    Conversation open = asked;
    open.messages = asked.messages.first(last);
    const std::string asks = rendered(open, true).text;
    const std::string_view text = answered.text;
    const size_t at = text.rfind(answer);
    if (at == text.npos) return false;
    // What asks may stand behind other things than the turn does: wherever it has most in common with it.
    const size_t said = asks.rfind(question);
    std::string_view behind = std::string_view(asks).substr(said == asks.npos ? 0 : said + question.size());
    bool told = false;
    for (const auto& turn : answered.turns) {
      if (turn.message != last || at < turn.begin || at > turn.end) continue;
      told = true;
      const std::string_view head = text.substr(turn.begin, at - turn.begin);
      for (; !behind.empty(); behind.remove_prefix(1))
        if (const size_t same = common_tokens(head, behind); same > header_.size())
          header_ = head.substr(0, same);
      thinks_first_ = head.ends_with(kEmptyThinking);
    }
    if (!told)
      if (const auto turn = turn_by_prefixes(asked, last, last + 1, text))
        header_ = text.substr(turn->begin, turn->header - turn->begin);
    // Thinking that it opens there is the assistant's all the same.
    header_.resize(std::min(header_.find(kThink), header_.size()));
    end_ = first_token(text.substr(at + answer.size()));
    if (end_ < 0) warn_of_no_end();
    return true;
  }

  void warn_of_no_end() const {
    static std::once_flag once;
    std::call_once(once, [&] {
      log::warn(
          "{} writes no token behind the last turn of the assistant, so that the model does not learn there "
          "where to stop.",
          files_.source);
    });
  }

  int32_t first_token(std::string_view text) const {
    for (size_t at = 0; (at = text.find_first_of("<[", at)) != text.npos; ++at)
      if (const auto id = token_at(text.substr(at))) return *id;
    return -1;
  }
  std::optional<int32_t> token_at(std::string_view text) const {
    const std::string_view name = bracketed(text);
    return name.empty() ? std::nullopt : tokenizer_.token_id(name);
  }

  void write(const Conversation& conversation, bool asks, ChatText& out) const {
    if (quick_ && quick_->write(conversation, asks, out)) return;
    JinjaTemplate::Rendering made;
    try {
      made = rendered(conversation, asks);
    } catch (const Error& error) {
      throw BadRecord{BadKind::kNotInTemplate, error.what()};
    }
    out.text = std::move(made.text);
    demand_turns(conversation, made, out.text);
    find_answers(conversation, made, out);
  }

  bool names_role(std::string_view role) const {
    return !role.empty() && (jinja_.find(fmt::format("'{}'", role)) != jinja_.npos ||
                             jinja_.find(fmt::format("\"{}\"", role)) != jinja_.npos);
  }

  JinjaTemplate::Rendering rendered(const Conversation& conversation, bool asks) const {
    JinjaVariables variables;
    files_.add_tokens(variables);
    if (!conversation.variables.empty())
      variables.add_record(conversation.variables, "the record's variables");
    if (!conversation.tools.empty()) variables.set_json("tools", conversation.tools);
    variables.set("add_generation_prompt", asks);
    std::vector<JinjaMessage> messages;
    std::deque<std::string> joined;  // the parts of lists that are handed on as one text
    for (const Message& message : conversation.messages) {
      if (message.opens) {
        messages.push_back(
            {names_role(message.called) ? message.called : role_name(message.role), message.text,
             takes_lists_ || !message.content.starts_with('[') ? message.content : std::string_view(),
             message.thinking, message.fields});
      } else if (JinjaMessage& whole = messages.back(); whole.content.empty()) {
        whole.text = joined.emplace_back(std::string(whole.text).append(message.text));
      }
    }
    variables.set_messages(messages);
    const bool tools = with_tools_ && variables.has("tools");
    return (tools ? *with_tools_ : usual_).render(variables, now_);
  }

  /// Throws BadRecord where a turn with words left no trace. (System turns stand where templates like.)
  void demand_turns(const Conversation& conversation, const JinjaTemplate::Rendering& made,
                    std::string_view text) const {
    size_t number = 0;
    for (const Message& message : conversation.messages) {
      if (!message.opens) continue;
      const size_t own = number++;
      const std::string_view said = python_text::strip(message.text);
      if (message.role == Role::kSystem || said.empty() || text.find(said) != text.npos) continue;
      if (std::ranges::find(made.turns, own, &JinjaTemplate::Rendering::Turn::message) != made.turns.end())
        continue;
      throw BadRecord{BadKind::kNotInTemplate,
                      fmt::format("{} leaves out a turn of the role '{}'", files_.source,
                                  message.called.empty() ? role_name(message.role) : message.called)};
    }
  }

  /// What {% generation %} says; without it, the assistant's turns behind what asks for them, up to the token
  /// that ends them.
  void find_answers(const Conversation& conversation, const JinjaTemplate::Rendering& made,
                    ChatText& out) const {
    std::vector<size_t> numbers;  // of the messages that open a turn, which are what the template has seen
    for (size_t i = 0; i < conversation.messages.size(); ++i)
      if (conversation.messages[i].opens) numbers.push_back(i);
    const std::string_view text = out.text;
    std::vector<bool> told(conversation.messages.size());
    for (const auto& turn : made.turns) {
      const size_t message = numbers[turn.message];
      told[message] = true;
      if (conversation.messages[message].role != Role::kAssistant) continue;
      const size_t header = header_in(text.substr(turn.begin, turn.end - turn.begin),
                                      python_text::strip(conversation.messages[message].text));
      if (!made.generated.empty()) {
        if (!add_generated(made, turn, header, message, out))
          throw BadRecord{BadKind::kNothingToLearn,
                          fmt::format("{} changes what it wrote inside of {{% generation %}}, so that it is "
                                      "not found again",
                                      files_.source)};
        continue;
      }
      const size_t end = end_of(text, turn.begin, turn.end);
      if (turn.begin + header < end) out.answers.push_back({turn.begin + header, end, message});
    }
    std::erase_if(numbers, [&](size_t message) {
      return told[message] || conversation.messages[message].role != Role::kAssistant;
    });
    if (!made.generated.empty()) {
      if (out.answers.empty()) add_generated_in_order(made, numbers, out);
      return;
    }
    for (const size_t message : numbers) find_by_prefixes(conversation, message, out);
    std::ranges::sort(out.answers, {}, &ChatText::Span::begin);
  }

  /// How much of a turn stands before the answer: the header, or where something else opens the turn, up to
  /// the header's end.
  size_t header_in(std::string_view turn, std::string_view said) const {
    const size_t same = common_tokens(turn, header_);
    if (same > 0 || header_.empty()) return same;
    const size_t at = turn.find(header_);
    return at != turn.npos && (said.empty() || at < turn.find(said)) ? at + header_.size() : 0;
  }

  /// The turn of a message that no loop over `messages` wrote: what the text up to it has more than the text
  /// before it. Throws BadRecord where the template writes these otherwise.
  void find_by_prefixes(const Conversation& conversation, size_t message, ChatText& out) const {
    const Message& own = conversation.messages[message];
    const bool says = !python_text::strip(own.text).empty() || !own.fields.empty() || own.thinking;
    if (!says || (learn_ == ChatLearn::kLast && has_answer_behind(conversation, message))) return;
    size_t behind = message + 1;
    while (behind < conversation.messages.size() && !conversation.messages[behind].opens) ++behind;
    if (const auto turn = turn_by_prefixes(conversation, message, behind, out.text)) {
      const auto [begin, header, end] = *turn;
      const size_t last = end_of(out.text, begin, end);
      if (header < last) out.answers.push_back({header, last, message});
      return;
    }
    throw BadRecord{
        BadKind::kNothingToLearn,
        fmt::format("{} writes a turn of the assistant that cannot be told apart", files_.source)};
  }

  static bool has_answer_behind(const Conversation& conversation, size_t message) {
    return std::ranges::any_of(conversation.messages.subspan(message + 1), [](const Message& later) {
      return later.opens && later.role == Role::kAssistant;
    });
  }

  struct PrefixTurn {
    size_t begin, header, end;  // bytes; the answer begins at `header`
  };
  std::optional<PrefixTurn> turn_by_prefixes(const Conversation& conversation, size_t first, size_t behind,
                                             std::string_view text) const {
    Conversation part = conversation;
    try {
      part.messages = conversation.messages.first(first);
      const std::string before = rendered(part, false).text, asks = rendered(part, true).text;
      part.messages = conversation.messages.first(behind);
      const std::string upto =
          behind == conversation.messages.size() ? std::string(text) : rendered(part, false).text;
      if (!text.starts_with(upto) || !upto.starts_with(before) || !asks.starts_with(before)) return {};
      std::string_view header = std::string_view(asks).substr(before.size());
      header = header.substr(0, header.find(kThink));
      const size_t same = common_tokens(std::string_view(upto).substr(before.size()), header);
      return PrefixTurn{before.size(), before.size() + same, upto.size()};
    } catch (const Error&) {
      return {};  // it cannot write a part of the conversation
    }
  }

  /// Of a turn: behind the token that ends it, without white space that follows. Where there is none, the
  /// token that opens the next turn is what tells the model to stop.
  size_t end_of(std::string_view text, size_t begin, size_t end) const {
    const std::string_view turn = text.substr(begin, end - begin);
    const size_t last = turn.find_last_not_of(" \n\r\t");
    if (last == turn.npos) return end;
    const size_t bracket = turn.find_last_of("<[", last);
    if (bracket != turn.npos && bracketed(turn.substr(bracket)).size() == last + 1 - bracket &&
        token_at(turn.substr(bracket)))
      return begin + last + 1;
    const std::string_view rest = text.substr(end);
    return token_at(rest) ? end + bracketed(rest).size() : end;
  }

  std::vector<ChatText::Span> learned(const ChatText& chat) const {
    std::vector<ChatText::Span> spans = chat.answers;
    if (learn_ == ChatLearn::kLast && !spans.empty())
      std::erase_if(spans, [last = spans.back().message](const auto& span) { return span.message != last; });
    return spans;
  }

  /// As its own training finds them: by ids, from "<|im_start|>assistant\n" to "<|im_end|>\n".
  void mark_as_minimind(const std::vector<int32_t>& ids, uint8_t* mask) const {
    const auto is_at = [&](const std::vector<int32_t>& part, size_t at) {
      return ids.size() - at >= part.size() && std::equal(part.begin(), part.end(), ids.begin() + at);
    };
    for (size_t i = 0; i < ids.size();) {
      if (!is_at(minimind_begin_, i)) {
        ++i;
        continue;
      }
      i += minimind_begin_.size();
      if (learn_ == ChatLearn::kLast) std::fill(mask, mask + i, 0);
      while (i < ids.size() && !is_at(minimind_end_, i)) mask[i++] = 1;
      for (size_t end = std::min(ids.size(), i + minimind_end_.size()); i < end; ++i) mask[i] = 1;
    }
  }

  const Tokenizer& tokenizer_;
  const ChatTemplateFiles files_;
  const std::time_t now_;
  const ChatLearn learn_;
  const bool learn_thinking_;
  const double empty_thinking_;
  std::string jinja_;  // all that may be rendered
  const JinjaTemplate usual_;
  std::optional<JinjaTemplate> with_tools_;
  const std::optional<QuickChat> quick_;
  std::vector<int32_t> minimind_begin_, minimind_end_;
  std::string header_;
  bool takes_lists_ = true, thinks_first_ = false;
  int32_t end_ = -1;
};

}  // namespace

std::unique_ptr<const ChatTemplate::Writer> make_template_chat(ChatForm form, const ChatConfig& config,
                                                               const Tokenizer& tokenizer) {
  return std::make_unique<const TemplateChat>(form, config, tokenizer);
}

}  // namespace tightloop
