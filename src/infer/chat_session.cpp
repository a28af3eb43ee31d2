#include "infer/chat_session.h"
#include "infer/calculator_calls.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "infer/prompts.h"
#include "infer/text_stream.h"

namespace tightloop {

std::unique_ptr<ChatTemplate> chat_template(const ChatConfig& config, const Tokenizer& tokenizer) {
  try {
    return std::make_unique<ChatTemplate>(config, tokenizer);
  } catch (const Error&) {
    return nullptr;
  }
}

std::vector<int32_t> stop_tokens(const Tokenizer& tokenizer, const ChatTemplate* chat,
                                 const std::vector<int32_t>& imported) {
  std::vector<int32_t> stops{tokenizer.end_of_text()};
  const auto add = [&](int32_t id) {
    if (id >= 0 && std::ranges::find(stops, id) == stops.end()) stops.push_back(id);
  };
  if (chat) add(chat->end_of_turn());
  std::ranges::for_each(imported, add);
  return stops;
}

std::vector<int32_t> stop_tokens(const LoadedRun& run) {
  return stop_tokens(*run.tokenizer, chat_template(run.recipe.chat, *run.tokenizer).get(),
                     imported_stop_tokens(run.metadata));
}

void check_template_inputs(const ChatTemplate& chat, const std::string& tools, const std::string& variables) {
  std::string names, why;
  const auto values = variables.empty() ? nlohmann::json::object() : nlohmann::json::parse(variables);
  for (const auto& [name, value] : values.items()) (names += name) += '\0';
  const Message question{Role::kUser, "?"};
  Conversation asked(std::span(&question, 1));
  asked.tools = tools, asked.variables = variables, asked.variable_names = names;
  if (chat.check(asked, why) != BadKind::kNone)
    throw usage_error("{}: this model's chat form does not read it.", why.substr(0, why.find(", which")));
}

std::string plain_question(const std::string& shown, const ChatConfig& chat, const Tokenizer& tokenizer) {
  constexpr std::string_view kPlaceholder = "{content}";
  const ChatSpelling form = chat_spelling(chat, tokenizer);
  const std::string turn = form.user;
  const size_t at = turn.find(kPlaceholder);
  if (at == turn.npos) return shown;
  const std::string before = turn.substr(0, at), after = turn.substr(at + kPlaceholder.size());
  const size_t found = shown.rfind(before);
  if (before.empty() || found == shown.npos) return shown;
  const std::string rest = shown.substr(found + before.size());
  if (!after.empty()) return rest.substr(0, rest.find(after));
  const std::string answer = form.assistant;  // its turn begins right behind the question
  return rest.substr(0, rest.rfind(answer.substr(0, answer.find(kPlaceholder))));
}

ChatSession::ChatSession(LanguageModel& model, const Tokenizer& tokenizer, const ChatTemplate& chat,
                         int64_t context, const std::vector<int32_t>& imported)
    : model_(model),
      tokenizer_(tokenizer),
      chat_(chat),
      context_(context),
      stop_tokens_(stop_tokens(tokenizer, &chat, imported)),
      calculator_(tokenizer) {}

void ChatSession::reset() {
  history_.clear();
  first_turn_ = 0;
}

void ChatSession::set_template_inputs(std::string tools, std::string variables) {
  tools_ = std::move(tools), variables_ = std::move(variables);
  check_template_inputs(chat_, tools_, variables_);
}

/// The decoder so far, where it has the room, or a larger one. It reads the conversation afresh.
Decoder& ChatSession::decoder_with(const Prompt& asked, int64_t max_tokens) {
  DecoderConfig config = decoder_for(model_.config(), {&asked, 1}, max_tokens, 1);
  if (!decoder_ || cache_tokens_ < config.cache_tokens) {
    decoder_.reset();
    cache_tokens_ = config.cache_tokens =
        std::max(config.cache_tokens, context_ + std::min(max_tokens, context_));
    decoder_ = std::make_unique<Decoder>(model_, config);
  }
  return *decoder_;
}

std::vector<int32_t> ChatSession::prompt(size_t first_turn) const {
  std::vector<Message> messages;
  if (!system_.empty()) messages.push_back({Role::kSystem, system_});
  for (size_t i = first_turn; i < history_.size(); ++i) {
    const Turn& turn = history_[i];
    if (turn.parts.empty()) messages.push_back({turn.role, turn.text});
    for (const auto& [kind, text] : turn.parts)
      messages.push_back({turn.role, text,
                          kind == CalculatorCalls::Part::Kind::kCall     ? Message::Part::kCode
                          : kind == CalculatorCalls::Part::Kind::kResult ? Message::Part::kOutput
                                                                         : Message::Part::kText,
                          &text == &turn.parts.front().second, &text == &turn.parts.back().second});
  }
  Conversation conversation(messages);
  conversation.tools = tools_, conversation.variables = variables_;
  return chat_.prompt(conversation);
}

ChatSession::Reply ChatSession::ask(const std::string& text, const SamplingConfig& sampling,
                                    const std::vector<std::string>& stops,
                                    const std::function<void(const std::string&)>& on_text) {
  if (const auto token = chat_.smuggled_token(text); !token.empty())
    throw data_error("the question holds '{}', a control token that this tokenizer cannot spell out.", token);
  const int64_t longest = longest_prompt(model_.config());
  check_length(text, longest);
  history_.push_back({Role::kUser, text});
  // Room for an answer: what was asked for, but no more than half of the context.
  const int64_t room = std::min(sampling.max_tokens, context_ / 2);
  auto ids = prompt(first_turn_);
  const size_t first_turn = first_turn_;
  Reply reply;
  const size_t last = history_.size() - 1;  // the question itself stays
  while (static_cast<int64_t>(ids.size()) + room > context_ && first_turn_ < last) {
    first_turn_ += 2, reply.dropped += 2;
    ids = prompt(first_turn_);
  }
  if (static_cast<int64_t>(ids.size()) > longest) {
    history_.pop_back();
    first_turn_ = first_turn;
    throw usage_error(
        "a question of {} tokens is too long for the model, which reads {} at most. Shorten it.", ids.size(),
        longest);
  }
  reply.prompt = std::ssize(ids);

  TextStream stream(tokenizer_, stops);
  GenerateOptions options;
  options.sampling = sampling;
  options.stop_tokens = stop_tokens_;
  options.vocab_size = tokenizer_.vocab_size();
  if (uses_calculator_) options.calculator = &calculator_;
  options.on_token = [&](size_t, int32_t id) {
    const std::string more = stream.add(id);
    if (on_text && !more.empty()) on_text(more);
    return !stream.stopped();
  };
  const Prompt asked{std::move(ids)};
  Answer answer;
  try {
    answer = generate(decoder_with(asked, sampling.max_tokens), {&asked, 1}, options)[0];
  } catch (...) {
    history_.pop_back();
    decoder_.reset();
    throw;
  }
  const std::string rest = stream.finish();
  if (on_text && !rest.empty()) on_text(rest);
  reply.read = reply.prompt - answer.shared_tokens;
  reply.text = stream.text();
  reply.end = answer.end;
  reply.tokens = static_cast<int64_t>(answer.ids.size());
  history_.push_back({Role::kAssistant, reply.text});
  // Calls are tokens, not words: they stand in later prompts as training has them.
  if (const auto parts = calculator_.parts(answer.ids); parts.size() > 1 && !stream.stopped())
    for (const auto& part : parts) history_.back().parts.emplace_back(part.kind, tokenizer_.decode(part.ids));
  return reply;
}

std::string ChatSession::to_json() const {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (!system_.empty()) messages.push_back({{"role", "system"}, {"content", system_}});
  for (const auto& turn : history_) {
    nlohmann::ordered_json content = turn.text;
    if (!turn.parts.empty()) {
      content = nlohmann::ordered_json::array();
      for (const auto& [kind, text] : turn.parts)
        content.push_back({{"type", kind == CalculatorCalls::Part::Kind::kCall     ? "python"
                                    : kind == CalculatorCalls::Part::Kind::kResult ? "python_output"
                                                                                   : "text"},
                           {"text", text}});
    }
    messages.push_back({{"role", turn.role == Role::kUser ? "user" : "assistant"}, {"content", content}});
  }
  nlohmann::ordered_json record{{"messages", messages}};
  if (!tools_.empty()) record["tools"] = nlohmann::ordered_json::parse(tools_);
  if (!variables_.empty()) record["chat_template_kwargs"] = nlohmann::ordered_json::parse(variables_);
  return record.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace tightloop
