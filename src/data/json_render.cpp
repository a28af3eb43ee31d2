#include <array>

#include "data/json_access.h"

namespace tightloop {

namespace {

namespace dom = simdjson::dom;

// Memory that a thread needs for one record at a time.
struct Scratch {
  dom::parser parser;
  std::string rewritten, question;
  std::vector<Message> messages;
};

Role role_of(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, Role>, 11> kRoles{{{"system", Role::kSystem},
                                                                             {"developer", Role::kSystem},
                                                                             {"user", Role::kUser},
                                                                             {"human", Role::kUser},
                                                                             {"prompter", Role::kUser},
                                                                             {"assistant", Role::kAssistant},
                                                                             {"gpt", Role::kAssistant},
                                                                             {"model", Role::kAssistant},
                                                                             {"tool", Role::kTool},
                                                                             {"function", Role::kTool},
                                                                             {"observation", Role::kTool}}};
  for (const auto& [spelling, role] : kRoles)
    if (spelling == name) return role;
  throw BadRecord{BadKind::kUnknownRole, fmt::format("unknown role '{}'", name.substr(0, 40))};
}

void add_parts(Role role, dom::array parts, std::vector<Message>& messages) {
  const size_t first = messages.size();
  for (const dom::element part : parts) {
    dom::object object;
    if (part.get(object) != simdjson::SUCCESS) {
      throw BadRecord{BadKind::kWrongType, "a part of a message is not an object"};
    }
    Message message{role, text_of(field_of(object, "text"), "text")};
    const std::string_view type =
        has_field(object, "type") ? text_of(field_of(object, "type"), "type") : "text";
    if (type == "python") message.part = Message::Part::kCode;
    if (type == "python_output") message.part = Message::Part::kOutput;
    if (type != "python" && type != "python_output" && type != "text") {
      throw BadRecord{BadKind::kWrongType,
                      fmt::format("a part of the type '{}' is not text", type.substr(0, 40))};
    }
    message.opens = messages.size() == first;
    message.closes = false;
    messages.push_back(message);
  }
  if (messages.size() == first) throw BadRecord{BadKind::kEmpty, "a message without parts"};
  messages.back().closes = true;
}

void read_messages(dom::element value, std::vector<Message>& messages) {
  dom::array turns;
  if (value.get(turns) != simdjson::SUCCESS)
    throw BadRecord{BadKind::kWrongType, "the conversation is not a list"};
  bool assistant = false;
  for (const dom::element turn : turns) {
    dom::object object;
    if (turn.get(object) != simdjson::SUCCESS)
      throw BadRecord{BadKind::kWrongType, "a message is not an object"};
    const bool from = !has_field(object, "role") && has_field(object, "from");
    const Role role = role_of(text_of(field_of(object, from ? "from" : "role"), from ? "from" : "role"));
    const std::string_view key =
        !has_field(object, "content") && has_field(object, "value") ? "value" : "content";
    const dom::element content = field_of(object, key);
    if (content.is_array()) {
      add_parts(role, content.get_array().value_unsafe(), messages);
    } else {
      messages.push_back({role, text_of(content, key)});
    }
    assistant |= role == Role::kAssistant;
  }
  if (messages.empty()) throw BadRecord{BadKind::kEmpty, "the conversation has no turn"};
  if (!assistant) throw BadRecord{BadKind::kNoAssistant, "no turn of the assistant to learn from"};
}

// GSM8K writes calculations as <<48/2=24>>: the part before the last = is code that the assistant runs, the
// part behind it is what comes back.
void split_calculations(std::vector<Message>& messages) {
  const std::string_view answer = messages.back().text;
  messages.pop_back();
  const size_t first = messages.size();
  const auto add = [&](std::string_view text, Message::Part part) {
    if (!text.empty()) messages.push_back({Role::kAssistant, text, part, messages.size() == first, false});
  };
  size_t at = 0;
  for (;;) {
    const size_t open = answer.find("<<", at), close = open == answer.npos ? open : answer.find(">>", open);
    if (close == answer.npos) break;
    const std::string_view inside = answer.substr(open + 2, close - open - 2);
    const size_t equals = inside.rfind('=');
    add(answer.substr(at, open - at), Message::Part::kText);
    add(inside.substr(0, equals), Message::Part::kCode);
    if (equals != inside.npos) add(inside.substr(equals + 1), Message::Part::kOutput);
    at = close + 2;
  }
  add(answer.substr(at), Message::Part::kText);
  if (messages.size() == first) throw BadRecord{BadKind::kEmpty, "the answer is empty"};
  messages.back().closes = true;
}

// What is in a record, as data.format says.
class JsonContents {
 public:
  explicit JsonContents(const DataConfig& config) : config_(config) {}

  /// The text of a record that holds one, or else its conversation in scratch.messages. Throws BadRecord.
  std::optional<std::string_view> read(const Record& record, Scratch& scratch) const {
    dom::object object;
    if (parse_json(record.bytes, scratch.parser, scratch.rewritten).get(object) != simdjson::SUCCESS)
      throw BadRecord{BadKind::kWrongType, "the record is not an object"};
    const std::string format = config_.format == "auto" ? guess(object) : config_.format;
    if (format == "text") return text_of(field_of(object, config_.text_field), config_.text_field);
    scratch.messages.clear();
    if (format == "chat") {
      read_messages(field_of(object, messages_field(object)), scratch.messages);
    } else if (format == "question") {
      read_question(object, scratch);
    } else if (format == "gsm8k") {
      read_question(object, scratch);
      split_calculations(scratch.messages);
    } else {
      read_choice(object, scratch);
    }
    return std::nullopt;
  }

 private:
  std::string messages_field(dom::object object) const {
    if (!config_.messages_field.empty()) return config_.messages_field;
    return !has_field(object, "messages") && has_field(object, "conversations") ? "conversations"
                                                                                : "messages";
  }

  std::string guess(dom::object object) const {
    if (has_field(object, messages_field(object))) return "chat";
    if (has_field(object, config_.choices_field)) return "choice";
    if (has_field(object, config_.question_field) && has_field(object, config_.answer_field))
      return "question";
    return "text";
  }

  void read_question(dom::object object, Scratch& scratch) const {
    const std::string_view question =
        text_of(field_of(object, config_.question_field), config_.question_field);
    const std::string_view answer = text_of(field_of(object, config_.answer_field), config_.answer_field);
    if (question.empty() || answer.empty())
      throw BadRecord{BadKind::kEmpty, "the question or the answer is empty"};
    scratch.messages.push_back({Role::kUser, question});
    scratch.messages.push_back({Role::kAssistant, answer});
  }

  // The question with lettered choices; the answer is the letter alone.
  void read_choice(dom::object object, Scratch& scratch) const {
    static constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    scratch.question = "Multiple Choice question: ";
    scratch.question += text_of(field_of(object, config_.question_field), config_.question_field);
    scratch.question += '\n';
    const dom::element value = field_of(object, config_.choices_field);
    dom::object columns;  // {"text": [...], "label": [...]}, as ARC has it
    const bool labelled = value.get(columns) == simdjson::SUCCESS;
    const dom::array texts = list_of(labelled ? field_of(columns, "text") : value, config_.choices_field);
    if (texts.size() > kLetters.size()) throw BadRecord{BadKind::kWrongType, "more than 26 choices"};
    const dom::element answer = field_of(object, config_.answer_field);
    size_t right = kLetters.size(), i = 0;
    for (const dom::element choice : texts) {
      const std::string_view text = text_of(choice, config_.choices_field);
      scratch.question += fmt::format("- {}={}\n", text, kLetters[i]);
      if (is_answer(answer, i, text, kLetters[i])) right = std::min(right, i);
      ++i;
    }
    if (labelled && has_field(columns, "label")) {
      i = 0;
      for (const dom::element label : list_of(field_of(columns, "label"), "label")) {
        std::string_view name, wanted;
        if (label.get(name) == simdjson::SUCCESS && answer.get(wanted) == simdjson::SUCCESS && name == wanted)
          right = i;
        ++i;
      }
    }
    if (right >= texts.size()) throw BadRecord{BadKind::kWrongType, "the answer is none of the choices"};
    scratch.question += "\nRespond only with the letter of the correct answer.";
    scratch.messages.push_back({Role::kUser, scratch.question});
    scratch.messages.push_back({Role::kAssistant, kLetters.substr(right, 1)});
  }

  // A number counts from 0; text is the letter, or the choice itself.
  static bool is_answer(dom::element answer, size_t i, std::string_view text, char letter) {
    uint64_t number = 0;
    if (answer.get(number) == simdjson::SUCCESS) return number == i;
    std::string_view name;
    if (answer.get(name) != simdjson::SUCCESS)
      throw BadRecord{BadKind::kWrongType, "the answer is neither number nor text"};
    return name == std::string_view(&letter, 1) || name == text;
  }

  DataConfig config_;
};

// Memory of this thread.
Scratch& own_scratch() {
  static thread_local Scratch scratch;
  return scratch;
}

class JsonRenderer : public Renderer {
 public:
  JsonRenderer(const DataConfig& config, const Tokenizer& tokenizer, std::shared_ptr<const ChatTemplate> chat,
               std::string why_no_chat)
      : contents_(config),
        loss_after_(config.loss_after),
        tokenizer_(tokenizer),
        chat_(std::move(chat)),
        why_no_chat_(std::move(why_no_chat)) {}
  std::optional<std::string_view> plain_text(const Record& record) const override {
    if (!loss_after_.empty()) return std::nullopt;
    return contents_.read(record, own_scratch());
  }

 protected:
  void make(const Record& record, Rendered& out) const override {
    Scratch& scratch = own_scratch();
    const auto text = contents_.read(record, scratch);
    if (text) return render_text(*text, loss_after_, tokenizer_, out);
    if (!chat_) throw usage_error("the data holds conversations: {}", why_no_chat_);
    chat_->render(scratch.messages, out.ids, out.mask);
  }

 private:
  JsonContents contents_;
  std::string loss_after_;
  const Tokenizer& tokenizer_;
  std::shared_ptr<const ChatTemplate> chat_;
  std::string why_no_chat_;
};

}  // namespace

std::unique_ptr<Renderer> make_json_renderer(const DataConfig& config, const Tokenizer& tokenizer,
                                             std::shared_ptr<const ChatTemplate> chat,
                                             std::string why_no_chat) {
  return std::make_unique<JsonRenderer>(config, tokenizer, std::move(chat), std::move(why_no_chat));
}

std::function<bool(const Record&, std::string&)> make_json_texts(const DataConfig& config) {
  return [contents = JsonContents(config)](const Record& record, std::string& out) {
    out.clear();
    Scratch& scratch = own_scratch();
    try {
      if (const auto text = contents.read(record, scratch)) {
        out = *text;
      } else {
        for (const Message& message : scratch.messages) (out += message.text) += '\n';
      }
    } catch (const BadRecord&) {
    }
    return !out.empty();
  };
}

}  // namespace tightloop
