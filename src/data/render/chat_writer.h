#pragma once

#include "data/render/chat.h"

namespace tightloop {

/// What ChatTemplate does, by the kind of form. The conversation has its system prompt already.
class ChatTemplate::Writer {
 public:
  virtual ~Writer() = default;
  virtual BadKind check(const Conversation& conversation, std::string& why) const = 0;
  virtual std::string_view smuggled_token(std::string_view text) const = 0;
  virtual void render(const Conversation& conversation, std::vector<int32_t>& ids,
                      std::vector<uint8_t>& mask) const = 0;
  virtual std::vector<int32_t> prompt(const Conversation& conversation, bool answers_at_once) const = 0;
  virtual int32_t end_of_turn() const = 0;
  virtual std::string description() const = 0;
};

std::unique_ptr<const ChatTemplate::Writer> make_spelled_chat(ChatForm form, const ChatConfig& config,
                                                              const Tokenizer& tokenizer);
std::unique_ptr<const ChatTemplate::Writer> make_template_chat(ChatForm form, const ChatConfig& config,
                                                               const Tokenizer& tokenizer);

/// Of a field that a form has no place for: "a message has the field 'x', which would be lost; ...".
std::string lost_field(std::string_view where, std::string_view name);

/// Whether a hash falls into a share of all.
bool in_share(uint64_t hash, double share);

}  // namespace tightloop
