#include <algorithm>

#include "core/hash.h"
#include "data/render/built_in_templates.h"
#include "tokenizer/unicode/python_text.h"

namespace tightloop {

namespace {

std::string_view without_line_ends(std::string_view text, bool left, bool right) {
  while (left && text.starts_with('\n')) text.remove_prefix(1);
  while (right && text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

/// Whether it is all text, by roles that every form knows.
bool is_plain(const Conversation& conversation) {
  return !conversation.messages.empty() && conversation.tools.empty() && conversation.variables.empty() &&
         std::ranges::all_of(conversation.messages, [](const Message& message) {
           return message.part == Message::Part::kText && message.opens && message.closes &&
                  message.content.empty() && message.fields.empty() &&
                  (message.called.empty() || message.called == role_name(message.role));
         });
}

struct Writer {
  ChatText& out;

  Writer& operator<<(std::string_view text) {
    out.text += text;
    return *this;
  }
  /// The assistant's turn, which `body` writes up to its end token.
  template <class Body>
  void answer(size_t message, Body&& body) {
    const size_t begin = out.text.size();
    body();
    out.answers.push_back({begin, out.text.size(), message});
  }
};

void write_chatml(const Conversation& conversation, bool asks, Writer& out) {
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const Message& message = conversation.messages[i];
    out << "<|im_start|>" << role_name(message.role) << "\n";
    if (message.role == Role::kAssistant) {
      out.answer(i, [&] { out << message.text << "<|im_end|>"; });
      out << "\n";
    } else {
      out << message.text << "<|im_end|>\n";
    }
  }
  if (asks) out << "<|im_start|>assistant\n";
}

bool is_tool_result(std::string_view text) {
  return text.starts_with("<tool_response>") && text.ends_with("</tool_response>");
}

void write_qwen(const Conversation& conversation, bool asks, bool minimind, Writer& out) {
  const auto& messages = conversation.messages;
  size_t question = messages.size() - 1;  // thinking is kept behind the last one alone
  for (size_t i = 0; i < messages.size(); ++i)
    if (messages[i].role == Role::kUser && !is_tool_result(messages[i].text)) question = i;
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    switch (message.role) {
      case Role::kSystem:
      case Role::kUser:
        out << "<|im_start|>" << role_name(message.role) << "\n" << message.text << "<|im_end|>\n";
        break;
      case Role::kTool:
        if (i == 0 || messages[i - 1].role != Role::kTool) out << "<|im_start|>user";
        out << "\n<tool_response>\n" << message.text << "\n</tool_response>";
        if (i + 1 == messages.size() || messages[i + 1].role != Role::kTool) out << "<|im_end|>\n";
        break;
      case Role::kAssistant: {
        std::string_view thought, said = message.text;
        if (message.thinking) {
          thought = *message.thinking;
        } else if (const size_t end = said.find(kThought); end != said.npos) {
          thought = without_line_ends(said.substr(0, end), false, true);
          if (const size_t begin = thought.rfind(kThink); begin != thought.npos)
            thought.remove_prefix(begin + kThink.size());
          thought = without_line_ends(thought, true, false);
          said = without_line_ends(said.substr(said.rfind(kThought) + kThought.size()), true, false);
        }
        const bool last = i + 1 == messages.size();
        out << "<|im_start|>assistant\n";
        out.answer(i, [&] {
          if (minimind || (i > question && (last || !thought.empty()))) {
            out << "<think>\n" << without_line_ends(thought, true, true) << "\n</think>\n\n";
            said = without_line_ends(said, true, false);
          }
          out << said << "<|im_end|>";
        });
        out << "\n";
        break;
      }
    }
  }
  if (asks) out << "<|im_start|>assistant\n" << (minimind ? "<think>\n\n</think>\n\n" : "");
}

void write_llama3(const Conversation& conversation, bool asks, const QuickChat& form, Writer& out) {
  const auto& messages = conversation.messages;
  const bool opens = messages[0].role == Role::kSystem;
  out << form.begin << "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
      << "Today Date: " << form.date << "\n\n"
      << (opens ? python_text::strip(messages[0].text) : std::string_view()) << "<|eot_id|>";
  for (size_t i = opens; i < messages.size(); ++i) {
    const Message& message = messages[i];
    out << "<|start_header_id|>" << role_name(message.role) << "<|end_header_id|>\n\n";
    const auto body = [&] { out << python_text::strip(message.text) << "<|eot_id|>"; };
    if (message.role == Role::kAssistant) {
      out.answer(i, body);
    } else {
      body();
    }
  }
  if (asks) out << "<|start_header_id|>assistant<|end_header_id|>\n\n";
}

}  // namespace

bool QuickChat::write(const Conversation& conversation, bool asks, ChatText& out) const {
  if (!is_plain(conversation)) return false;
  const bool tools = std::ranges::any_of(conversation.messages,
                                         [](const Message& message) { return message.role == Role::kTool; });
  if (tools && form == ChatForm::kLlama3) return false;  // it writes them as JSON
  size_t bytes = 128;
  for (const Message& message : conversation.messages)
    bytes += message.text.size() + (message.thinking ? message.thinking->size() : 0) + 64;
  out.text.reserve(bytes);
  out.answers.reserve(conversation.messages.size());
  Writer writer{out};
  if (form == ChatForm::kLlama3) {
    write_llama3(conversation, asks, *this, writer);
  } else if (form == ChatForm::kChatml) {
    write_chatml(conversation, asks, writer);
  } else {
    write_qwen(conversation, asks, form == ChatForm::kMinimind, writer);
  }
  return true;
}

std::optional<QuickChat> quick_form_of(const std::string& jinja, const std::string& begin, std::time_t now) {
  // Hashes of the templates that these models are published with, without a line end behind them.
  struct Known {
    uint64_t hash;
    ChatForm form;
    bool dated;  // with the day of rendering
  };
  static constexpr Known kKnown[] = {
      {0x0283f874ff58d644, ChatForm::kQwen3, false},     // Qwen3-0.6B and its like
      {0x5aeb9ace868aec2e, ChatForm::kMinimind, false},  // MiniMind
      {0x6ca7779b7730196a, ChatForm::kLlama3, false},    // Llama 3.1
      {0xc3d57e38f5ff0756, ChatForm::kLlama3, true},     // Llama 3.2
      {0x4c6e807ee5fe9f4a, ChatForm::kChatml, false},    // ChatML in one line, as many models have it
  };
  for (const ChatForm form : {ChatForm::kQwen3, ChatForm::kMinimind, ChatForm::kLlama3})
    if (jinja == built_in_template(form)) return QuickChat{form, "<|begin_of_text|>", "26 Jul 2024"};
  const uint64_t hash =
      hash64(jinja.ends_with('\n') ? std::string_view(jinja).substr(0, jinja.size() - 1) : jinja);
  for (const Known& known : kKnown) {
    if (known.hash != hash) continue;
    QuickChat quick{known.form, begin, "26 Jul 2024"};
    if (known.dated) {
      char day[32];
      std::tm local{};
      localtime_r(&now, &local);
      quick.date.assign(day, std::strftime(day, sizeof day, "%d %b %Y", &local));
    }
    return quick;
  }
  return {};
}

}  // namespace tightloop
