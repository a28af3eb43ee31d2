#include "serve/prompts_of.h"

#include <algorithm>
#include <span>

#include "core/error.h"
#include "infer/prompts.h"
#include "infer/thoughts.h"
#include "serve/api/fields.h"
#include "serve/api/messages.h"

namespace tightloop::serve {

namespace {

void check_tokens(const ServedModel& model, size_t tokens, int64_t longest, const std::string& field,
                  const char* more = "") {
  if (static_cast<int64_t>(tokens) <= longest) return;
  throw ApiError{
      .message = fmt::format("the prompt has {} tokens{}; at most {} are read here, of the model's context "
                             "of {}. Shorten it.",
                             tokens, more, longest, model.context()),
      .param = field,
      .code = "context_length_exceeded"};
}

/// A text that cannot fit is not tokenized.
void check_bytes(const ServedModel& model, size_t bytes, int64_t longest, const std::string& field) {
  check_tokens(model, bytes / kMostTokenBytes, longest, field, " or more");
}

size_t text_bytes(const OrderedJson& json) {
  if (json.is_string()) return json.get_ref<const std::string&>().size();
  size_t bytes = 0;
  if (json.is_structured())
    for (const auto& one : json) bytes += text_bytes(one);
  return bytes;
}

}  // namespace

int64_t longest_of(const ServedModel& model, int64_t limit) {
  const int64_t longest = std::min(longest_prompt(model.config()), model.context() - 1);
  return limit > 0 ? std::min(limit, longest) : longest;
}

ReadPrompt read_prompt(const ServedModel& model, const std::variant<std::string, std::vector<int32_t>>& given,
                       int64_t longest, const std::string& field) {
  const Tokenizer& tokenizer = model.tokenizer();
  ReadPrompt prompt;
  if (const auto* text = std::get_if<std::string>(&given)) {
    check_bytes(model, text->size(), longest, field);
    prompt.text = *text;
    tokenizer.encode(*text, prompt.ids);
    if (prompt.ids.empty()) prompt.ids.push_back(tokenizer.end_of_text());  // a document from its start
  } else {
    prompt.ids = std::get<std::vector<int32_t>>(given);
    check_tokens(model, prompt.ids.size(), longest, field);
    for (const int32_t id : prompt.ids)
      if (id >= tokenizer.vocab_size())
        throw wrong_field(field, "there is no token {}: ids go from 0 to {}.", id,
                          tokenizer.vocab_size() - 1);
    prompt.text = tokenizer.decode(prompt.ids);
  }
  check_tokens(model, prompt.ids.size(), longest, field);
  return prompt;
}

std::vector<ReadPrompt> prompts_of(const ServedModel& model, const GenerationRequest& request,
                                   int64_t limit) {
  const int64_t longest = longest_of(model, limit);
  std::vector<ReadPrompt> prompts;
  for (const auto& given : request.prompts) prompts.push_back(read_prompt(model, given, longest, "prompt"));
  if (!request.chat) return prompts;
  if (!model.chat())
    throw ApiError{.message = fmt::format("'{}' has learned no conversations: use /v1/completions, which "
                                          "continues a text.",
                                          model.name()),
                   .param = "model"};
  check_bytes(model, text_bytes(request.messages) + text_bytes(request.tools), longest, "messages");
  ReadPrompt prompt{.ids = chat_prompt(*model.chat(), request.messages,
                                       request.uses_tools ? request.tools : OrderedJson(),
                                       request.template_variables)};
  check_tokens(model, prompt.ids.size(), longest, "messages");
  prompt.thinks = opens_thinking(model.tokenizer(), prompt.ids);
  prompts.push_back(std::move(prompt));
  return prompts;
}

}  // namespace tightloop::serve
