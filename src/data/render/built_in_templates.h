#pragma once

#include <ctime>
#include <optional>
#include <string>

#include "data/render/chat.h"
#include "data/render/chat_text.h"

namespace tightloop {

/// The template in Jinja of a form that is one: what the model of that name renders, in words of ours. Empty
/// for other forms.
std::string built_in_template(ChatForm form);

/// What a quick form needs to know besides the conversation.
struct QuickChat {
  ChatForm form = ChatForm::kAuto;  // kChatml, kMinimind, kQwen3 or kLlama3
  std::string begin, date;          // of llama3: the first token, and the day

  /// Writes the conversation as the template does, up to where the assistant answers if `asks`. False, and
  /// nothing is written, where it holds what only the template knows: tools, calls, lists of parts,
  /// variables.
  bool write(const Conversation& conversation, bool asks, ChatText& out) const;
};

/// The quick form of a template that is known, by its text; nothing for others. `now`: for those that name
/// the date.
std::optional<QuickChat> quick_form_of(const std::string& jinja, const std::string& begin, std::time_t now);

}  // namespace tightloop
