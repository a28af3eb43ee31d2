#include "data/render/chat.h"

#include "core/error.h"
#include "core/hash.h"
#include "data/render/chat_writer.h"
#include "tokenizer/jinja/template_files.h"

namespace tightloop {

void ChatConfig::describe(Fields& fields) {
  fields.add("form", form, "How turns are written");
  fields.add("template", template_path,
             "A chat template of Hugging Face in the place of the tokenizer's: a file, or a model's folder");
  fields.add("system_prompt", system_prompt,
             "Put first in conversations that have no system prompt of their own");
  fields.add("system_prompts", system_prompts,
             "Of these, one is put first in a share of the conversations that have neither a system prompt "
             "nor tools, as MiniMind does; the record decides which");
  fields.add("system_share", system_share, "Of `system_prompts`: that share (MiniMind: 0.2)").range(0, 1);
  fields.add("begin", begin, "For `form: own`: what every conversation starts with");
  fields.add("system", system, "For `form: own`: a system turn, {content} in the place of the message");
  fields.add("user", user, "For `form: own`: a user turn, such as <|user|>{content}<|end|>");
  fields.add("assistant", assistant,
             "For `form: own`: an assistant turn; what follows {content} is learned up to {end}, or else up "
             "to the first control token");
  fields.add("answer_tokens", answer_tokens,
             "For `form` chatml, nanochat and own: what becomes of a token of the tokenizer that an "
             "assistant's answer holds by its name, such as <think>");
  fields.add("learn", learn, "Which tokens of a conversation are learned");
  fields.add("learn_thinking", learn_thinking,
             "Of templates: learn what is between <think> and </think>, and these");
  fields
      .add("empty_thinking", empty_thinking,
           "Of templates: in which share of the conversations an empty <think> block stays; the record "
           "decides (MiniMind: 0.2)")
      .range(0, 1);
  fields.add("today", today,
             "Of templates that name the date: the day, such as 2026-01-31; empty: when the run started");
}

ChatConfig for_questions(ChatConfig config) {
  config.learn = ChatLearn::kAssistant;
  config.learn_thinking = true;
  config.empty_thinking = 1;
  config.system_share = 0;
  return config;
}

std::string_view role_name(Role role) {
  constexpr std::string_view kNames[] = {"system", "user", "assistant", "tool"};
  return kNames[static_cast<size_t>(role)];
}

ChatForm resolve_form(const ChatConfig& config, const Tokenizer& tokenizer) {
  const bool brings = !tokenizer.chat().empty();
  if (config.form == ChatForm::kTemplate && !brings)
    throw usage_error(
        "chat.form template: there is no chat template beside the tokenizer. Name one (--chat.template "
        "FILE), "
        "or choose another form.");
  if (!config.template_path.empty() && config.form != ChatForm::kAuto && config.form != ChatForm::kTemplate)
    throw usage_error("chat.template is given, and chat.form {} does not read it. Leave one of them out.",
                      name_of(config.form));
  if (config.form != ChatForm::kAuto) return config.form;
  if (brings) return ChatForm::kTemplate;
  if (tokenizer.token_id("<|user_start|>")) return ChatForm::kNanochat;
  if (tokenizer.token_id("<|start_header_id|>")) return ChatForm::kLlama3;
  return ChatForm::kChatml;
}

ChatSpelling chat_spelling(const ChatConfig& config, const Tokenizer& tokenizer) {
  const ChatForm form = resolve_form(config, tokenizer);
  if (form == ChatForm::kOwn) return {config.begin, config.system, config.user, config.assistant, ""};
  if (form == ChatForm::kNanochat)
    return {"<|bos|>", "", "<|user_start|>{content}<|user_end|>",
            "<|assistant_start|>{content}<|assistant_end|>{end}", "<|output_start|>{content}<|output_end|>"};
  if (tokenizer.token_id("<|start_header_id|>") && form != ChatForm::kChatml) {
    const auto turn = [](const char* role) {
      return fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n{{content}}<|eot_id|>", role);
    };
    return {"<|begin_of_text|>", turn("system"), turn("user"), turn("assistant"), turn("ipython")};
  }
  if (form == ChatForm::kTemplate && !tokenizer.token_id("<|im_start|>")) return {};
  return {"", "<|im_start|>system\n{content}<|im_end|>\n", "<|im_start|>user\n{content}<|im_end|>\n",
          "<|im_start|>assistant\n{content}<|im_end|>{end}\n",
          "<|im_start|>user\n<tool_response>\n{content}\n</tool_response><|im_end|>\n"};
}

std::string lost_field(std::string_view where, std::string_view name) {
  return fmt::format("{} has the field '{}', which would be lost; data.ignore_fields can name it", where,
                     name.substr(0, 40));
}

bool in_share(uint64_t hash, double share) { return static_cast<double>(hash >> 32) < share * 4294967296.0; }

namespace {

std::unique_ptr<const ChatTemplate::Writer> make_writer(const ChatConfig& config,
                                                        const Tokenizer& tokenizer) {
  const ChatForm form = resolve_form(config, tokenizer);
  const bool spelled = form == ChatForm::kChatml || form == ChatForm::kNanochat || form == ChatForm::kOwn;
  if (config.system_share > 0 && config.system_prompts.empty())
    throw usage_error("chat.system_share is {}, and there are no chat.system_prompts to put first.",
                      config.system_share);
  if (spelled && !config.learn_thinking)
    throw usage_error("chat.learn_thinking false: chat.form {} has no thinking. Choose qwen3 or minimind.",
                      name_of(form));
  return spelled ? make_spelled_chat(form, config, tokenizer) : make_template_chat(form, config, tokenizer);
}

template <class Action>
void with_system_prompt(const Conversation& conversation, std::string_view prompt, Action&& action) {
  const auto& messages = conversation.messages;
  if (prompt.empty() || (!messages.empty() && messages[0].role == Role::kSystem)) return action(conversation);
  std::vector<Message> longer{{Role::kSystem, prompt}};
  longer.insert(longer.end(), messages.begin(), messages.end());
  Conversation whole = conversation;
  whole.messages = longer;
  action(whole);
}

}  // namespace

ChatTemplate::ChatTemplate(const ChatConfig& config, const Tokenizer& tokenizer)
    : writer_(make_writer(config, tokenizer)),
      system_prompt_(config.system_prompt),
      system_prompts_(config.system_prompts),
      system_share_(config.system_share) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;

BadKind ChatTemplate::check(const Conversation& conversation, std::string& why) const {
  return writer_->check(conversation, why);
}
std::string_view ChatTemplate::smuggled_token(std::string_view text) const {
  return writer_->smuggled_token(text);
}

/// One of system_prompts_, or none: of one hash come both whether and which.
std::string_view ChatTemplate::drawn_prompt(uint64_t hash) const {
  if (system_prompts_.empty()) return {};
  const uint64_t drawn = hash64("system prompt " + hex64(hash));
  if (!in_share(drawn, system_share_)) return {};
  return system_prompts_[(drawn & 0xffffffff) % system_prompts_.size()];
}

void ChatTemplate::render(const Conversation& conversation, std::vector<int32_t>& ids,
                          std::vector<uint8_t>& mask) const {
  std::string_view prompt = system_prompt_;
  if (prompt.empty() && conversation.tools.empty()) prompt = drawn_prompt(conversation.hash);
  with_system_prompt(conversation, prompt,
                     [&](const Conversation& whole) { writer_->render(whole, ids, mask); });
}

std::vector<int32_t> ChatTemplate::prompt(const Conversation& conversation, bool answers_at_once) const {
  std::vector<int32_t> ids;
  with_system_prompt(conversation, system_prompt_,
                     [&](const Conversation& whole) { ids = writer_->prompt(whole, answers_at_once); });
  return ids;
}

int32_t ChatTemplate::end_of_turn() const { return writer_->end_of_turn(); }
std::string ChatTemplate::description() const { return writer_->description(); }

}  // namespace tightloop
