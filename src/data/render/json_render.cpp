#include <fmt/ranges.h>

#include <algorithm>

#include "core/hash.h"
#include "data/render/json_access.h"
#include "data/render/json_messages.h"

namespace tightloop {

namespace {

namespace dom = simdjson::dom;

// Memory that a thread needs for one record at a time.
struct RecordScratch {
  dom::parser parser;
  std::string rewritten;
  ReadConversation talk;
};

// What is in a record, as data.format says.
class JsonContents {
 public:
  explicit JsonContents(const DataConfig& config) : config_(config) {}

  /// The text of a record that holds one, or else its conversation in scratch.talk. Throws BadRecord.
  std::optional<std::string_view> read(const Record& record, RecordScratch& scratch) const {
    dom::object object;
    if (parse_json(record.bytes, scratch.parser, scratch.rewritten).get(object) != simdjson::SUCCESS)
      throw BadRecord{BadKind::kWrongType, "the record is not an object"};
    const RecordFormat format = config_.format == RecordFormat::kAuto ? guess(object) : config_.format;
    if (format == RecordFormat::kText) {
      if (!has_field(object, config_.text_field)) refuse_shape(object);
      return text_of(field_of(object, config_.text_field), config_.text_field);
    }
    scratch.talk.clear();
    if (format == RecordFormat::kChat && !has_field(object, messages_field(object))) {
      const AnswerShape shape = config_.messages_field.empty() ? answer_shape(object) : AnswerShape::kNone;
      if (shape == AnswerShape::kNone) refuse_shape(object);
      read_answer(object, shape, config_, scratch.talk);
      return std::nullopt;
    }
    demand_known_fields(object, fields_with_meaning(format), config_);
    if (config_.messages_field.empty() && answer_shape(object) == AnswerShape::kPreference)
      throw BadRecord{
          BadKind::kUnknownField,
          "the record has a conversation, and 'chosen' and 'rejected' beside it; data.messages_field "
          "or data.ignore_fields says which to learn"};
    read_beside(object, config_, scratch.talk);
    if (format == RecordFormat::kChat) {
      read_conversation(object, scratch.talk);
    } else if (format == RecordFormat::kQuestion) {
      read_question(object, scratch.talk);
    } else if (format == RecordFormat::kGsm8k) {
      read_question(object, scratch.talk);
      split_calculations(scratch.talk.messages);
    } else {
      read_choice(object, scratch.talk);
    }
    return std::nullopt;
  }

  /// What the fields of a record say, whatever data.format is. Throws BadRecord.
  RecordShape shape(const Record& record, RecordScratch& scratch) const {
    read(record, scratch);
    const dom::object object = parse_json(record.bytes, scratch.parser, scratch.rewritten).get_object();
    const RecordFormat format = guess(object);
    if (format == RecordFormat::kText) return {format, fmt::format("texts ({})", config_.text_field)};
    if (format == RecordFormat::kQuestion) return {format, "questions and answers"};
    if (format == RecordFormat::kChoice) return {format, "multiple choice questions"};
    const AnswerShape answer = answer_shape(object);
    const bool turns = has_field(object, messages_field(object));
    return {format, fmt::format("conversations ({})", turns ? messages_field(object)
                                                      : answer == AnswerShape::kPrompt ? "prompt, completion"
                                                      : answer == AnswerShape::kPreference
                                                          ? "prompt, chosen, rejected"
                                                          : "instruction, output")};
  }

 private:
  /// A system prompt may stand beside the conversation, in it, or alike in both.
  void read_conversation(dom::object object, ReadConversation& talk) const {
    add_system(object, config_, talk);
    const bool beside = !talk.messages.empty();
    read_messages(field_of(object, messages_field(object)), config_, talk);
    if (beside) join_system(talk);
  }

  std::string messages_field(dom::object object) const {
    if (!config_.messages_field.empty()) return config_.messages_field;
    return !has_field(object, "messages") && has_field(object, "conversations") ? "conversations"
                                                                                : "messages";
  }

  RecordFormat guess(dom::object object) const {
    if (has_field(object, messages_field(object))) return RecordFormat::kChat;
    if (has_field(object, config_.choices_field)) return RecordFormat::kChoice;
    if (has_field(object, config_.question_field) && has_field(object, config_.answer_field))
      return RecordFormat::kQuestion;
    return answer_shape(object) != AnswerShape::kNone ? RecordFormat::kChat : RecordFormat::kText;
  }

  [[noreturn]] void refuse_shape(dom::object object) const {
    constexpr size_t kShown = 12;
    std::vector<std::string> names;
    for (const auto field : object) {
      if (names.size() == kShown) break;
      names.push_back(fmt::format("'{}'", field.key.substr(0, 40)));
    }
    const std::string chat = config_.messages_field.empty() ? "'messages', 'conversations'"
                                                            : fmt::format("'{}'", config_.messages_field);
    throw BadRecord{
        BadKind::kMissingField,
        fmt::format(
            "its fields are {}; data.format {} needs {}", fmt::join(names, ", "), name_of(config_.format),
            config_.format == RecordFormat::kText ? fmt::format("'{}' (data.text_field)", config_.text_field)
            : config_.format == RecordFormat::kChat
                ? chat + ", 'instruction' and 'output', or 'prompt' and 'completion'"
                : fmt::format("'{}', {}, 'instruction' and 'output', 'prompt' "
                              "and 'completion', or '{}' and '{}'",
                              config_.text_field, chat, config_.question_field, config_.answer_field))};
  }

  void read_question(dom::object object, ReadConversation& talk) const {
    const std::string_view question =
        text_of(field_of(object, config_.question_field), config_.question_field);
    const std::string_view answer = text_of(field_of(object, config_.answer_field), config_.answer_field);
    if (is_blank(question) || is_blank(answer))
      throw BadRecord{BadKind::kEmpty, "the question or the answer is empty"};
    talk.messages.push_back({Role::kUser, question});
    talk.messages.push_back({Role::kAssistant, answer});
  }

  // The question with labelled choices; the answer is the label alone.
  void read_choice(dom::object object, ReadConversation& talk) const {
    const ChoiceQuestion choice = tightloop::read_choice(object, config_);
    talk.messages.push_back({Role::kUser, talk.keep(choice_text(choice))});
    talk.messages.push_back({Role::kAssistant, choice.labels[choice.right]});
  }

  DataConfig config_;
};

// Memory of this thread.
RecordScratch& own_scratch() {
  static thread_local RecordScratch scratch;
  return scratch;
}

class JsonRenderer : public Renderer {
 public:
  JsonRenderer(const DataConfig& config, const Tokenizer& tokenizer, std::shared_ptr<const ChatTemplate> chat,
               std::string why_no_chat)
      : contents_(config),
        loss_after_(config.loss_after),
        tokenizer_(tokenizer),
        marks_(config, tokenizer),
        chat_(std::move(chat)),
        why_no_chat_(std::move(why_no_chat)) {}
  std::optional<std::string_view> plain_text(const Record& record) const override {
    if (!loss_after_.empty() || !marks_.plain()) return std::nullopt;
    return contents_.read(record, own_scratch());
  }

 protected:
  void make(const Record& record, Rendered& out) const override {
    RecordScratch& scratch = own_scratch();
    const auto text = contents_.read(record, scratch);
    if (text) return render_text(*text, loss_after_, tokenizer_, marks_, out);
    if (!chat_) throw usage_error("the data holds conversations: {}", why_no_chat_);
    const Conversation conversation = scratch.talk.conversation(hash64(record.bytes));
    if (const BadKind bad = chat_->check(conversation, out.why); bad != BadKind::kNone)
      throw BadRecord{bad, std::move(out.why)};
    chat_->render(conversation, out.ids, out.mask);
  }

 private:
  JsonContents contents_;
  std::string loss_after_;
  const Tokenizer& tokenizer_;
  const TextMarks marks_;
  std::shared_ptr<const ChatTemplate> chat_;
  std::string why_no_chat_;
};

}  // namespace

std::unique_ptr<Renderer> make_json_renderer(const DataConfig& config, const Tokenizer& tokenizer,
                                             std::shared_ptr<const ChatTemplate> chat,
                                             std::string why_no_chat) {
  return std::make_unique<JsonRenderer>(config, tokenizer, std::move(chat), std::move(why_no_chat));
}

std::optional<RecordShape> record_shape(const Record& record, const DataConfig& config) {
  DataConfig any = config;
  any.format = RecordFormat::kAuto;
  try {
    if (record.bad != BadKind::kNone) return {};
    return JsonContents(any).shape(record, own_scratch());
  } catch (const BadRecord&) {
    return {};
  }
}

std::function<void(const Record&, std::string&)> make_json_texts(const DataConfig& config) {
  return [contents = JsonContents(config)](const Record& record, std::string& out) {
    out.clear();
    RecordScratch& scratch = own_scratch();
    if (record.bad != BadKind::kNone) throw BadRecord{record.bad, std::string(record.bytes)};
    if (const auto text = contents.read(record, scratch)) {
      out = *text;
    } else {
      for (const Message& message : scratch.talk.messages) {
        if (message.thinking) (out += *message.thinking) += '\n';
        (out += message.text) += '\n';
      }
    }
    if (out.empty()) throw BadRecord{BadKind::kEmpty, "the text is empty"};
  };
}

}  // namespace tightloop
