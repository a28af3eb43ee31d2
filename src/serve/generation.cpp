#include "serve/generation.h"

#include <algorithm>
#include <ctime>
#include <iterator>

#include "core/error.h"
#include "core/log.h"
#include "dist/fault.h"
#include "infer/prompts.h"

namespace tightloop::serve {

namespace {

std::set<std::string> tool_names(const GenerationRequest& request) {
  std::set<std::string> names;
  if (request.uses_tools)
    for (const auto& tool : request.tools) names.insert(tool["function"]["name"].get<std::string>());
  return names;
}

ApiError server_error(int status, std::string message) {
  return {.status = status, .message = std::move(message), .type = "server_error"};
}

}  // namespace

Generation::Generation(HttpServer& server, Aside aside, std::shared_ptr<Exchange> exchange,
                       ServedModel& model, GenerationRequest request, std::vector<ReadPrompt> prompts,
                       Clock::time_point until)
    : server_(server),
      aside_(std::move(aside)),
      exchange_(std::move(exchange)),
      model_(model),
      request_(std::move(request)),
      prompts_(std::move(prompts)),
      until_(until),
      head_{.chat = request_.chat,
            .id = fresh_id(request_.chat ? "chatcmpl-" : "cmpl-"),
            .model = model.name(),
            .created = static_cast<int64_t>(std::time(nullptr))} {
  for (const auto& prompt : prompts_) usage_.prompt += static_cast<int64_t>(prompt.ids.size());
}

DecodeRequest Generation::decode_request(const ReadPrompt& prompt, uint64_t sample) const {
  DecodeRequest asked{.prompt = prompt.ids,
                      .sampling = request_.sampling,
                      .sample = sample,
                      .stop_tokens = request_.ignore_end ? std::vector<int32_t>() : model_.stop_tokens(),
                      .vocab_size = model_.tokenizer().vocab_size(),
                      .logprobs = request_.logprobs,
                      .calculator = model_.calculator()};
  std::ranges::copy(request_.stop_ids, std::back_inserter(asked.stop_tokens));
  const int64_t room = model_.context() - static_cast<int64_t>(prompt.ids.size());
  asked.sampling.max_tokens = std::max<int64_t>(1, std::min(request_.max_tokens.value_or(room), room));
  return asked;
}

void Generation::start() {
  exchange_->on_lost = [weak = weak_from_this()](Exchange::Lost how) {
    const auto self = weak.lock();
    if (!self) return;
    if (how == Exchange::Lost::kSlow)
      log::warn("A stream is cancelled: its client reads more slowly than the answer is written.");
    self->cancel();
  };
  const auto tools = tool_names(request_);
  const auto wake = [&server = server_, weak = weak_from_this()] {
    server.post([weak] {
      if (const auto self = weak.lock()) self->pump();
    });
  };
  EqualPrompts equal;
  for (const ReadPrompt& prompt : prompts_) {
    const auto first = equal.before(prompt.ids) * static_cast<uint64_t>(request_.n);
    for (int64_t sample = 0; sample < request_.n; ++sample) {
      try {
        auto feed = std::make_shared<AnswerFeed>(model_.tokenizer(), request_.stops, prompt.ids,
                                                 request_.logprobs >= 0, request_.stream, model_.times(),
                                                 exchange_->began(), wake);
        DecodeRequest asked = decode_request(prompt, first + static_cast<uint64_t>(sample));
        asked.on_token = [feed](const DecodedToken& token) { return feed->on_token(token); };
        asked.on_end = [feed](const DecodeEnd& end) { feed->on_end(end); };
        const auto ticket = model_.submit(std::move(asked));
        answers_.push_back(
            {.feed = std::move(feed), .ticket = ticket, .parts = AnswerParts(prompt.thinks, tools)});
      } catch (const Error& error) {
        cancel();
        throw ApiError{.message = error.what(), .param = request_.chat ? "messages" : "prompt"};
      } catch (...) {
        cancel();
        throw;
      }
    }
  }
}

void Generation::pump() {
  if (done_ || written_) return;
  try {
    for (size_t i = 0; i < answers_.size() && !done_; ++i) take(i);
    if (!done_ && std::ranges::all_of(answers_, [](const Made& one) { return one.end.has_value(); }))
      finish();
  } catch (const std::exception& error) {  // it is this answer's alone
    const std::string why = last_words(error).what();
    log::error("An answer failed: {}", why);
    stop(server_error(500, why));
  }
}

void Generation::take(size_t index) {
  Made& made = answers_[index];
  if (made.end) return;
  AnswerNews news = made.feed->take();
  if (news.end && !news.end->error.empty()) {
    log::error("An answer failed: {}", news.end->error);
    return stop(server_error(500, news.end->error));
  }
  if (news.end && news.end->end == AnswerEnd::kInterrupted)
    return stop(server_error(503, "the answer was interrupted."));
  AnswerDelta delta;
  if (!request_.chat) {
    delta.content = std::move(news.text);
  } else {
    delta = made.parts.add(news.text);
    if (news.end) {
      AnswerDelta rest = made.parts.finish();
      delta.thinking += rest.thinking, delta.content += rest.content;
      std::ranges::move(rest.calls, std::back_inserter(delta.calls));
    }
  }
  if (!request_.several_calls && made.called + delta.calls.size() > 1)
    delta.calls.resize(made.called == 0 ? 1 : 0);
  give(index, delta, news.tokens);
  if (!news.end || done_) return;
  made.end = std::move(news.end);
  usage_.made += made.end->made_tokens;
  if (index % static_cast<size_t>(request_.n) == 0) usage_.cached += made.end->shared_tokens;
  if (request_.stream) give_end(index);
}

void Generation::give(size_t index, const AnswerDelta& delta, std::span<const DecodedToken> tokens) {
  Made& made = answers_[index];
  if (!request_.stream) {
    made.text += delta.content, made.thinking += delta.thinking;
    std::ranges::copy(delta.calls, std::back_inserter(made.calls));
    std::ranges::copy(tokens, std::back_inserter(made.tokens));
    made.called += delta.calls.size();
    return;
  }
  const bool opens = !std::exchange(made.opened, true);
  if (delta.empty() && tokens.empty() && !opens) return;
  nlohmann::json choice{{"index", index}, {"finish_reason", nullptr}, {"logprobs", nullptr}};
  if (request_.chat) {
    nlohmann::json said = nlohmann::json::object();
    if (opens) said["role"] = "assistant", said["content"] = "";
    if (!delta.content.empty()) said["content"] = delta.content;
    if (!delta.thinking.empty()) said["reasoning_content"] = delta.thinking;
    if (!delta.calls.empty()) said["tool_calls"] = calls_json(delta.calls, made.called);
    choice["delta"] = std::move(said);
    if (request_.logprobs >= 0) choice["logprobs"] = chat_logprobs(model_.tokenizer(), tokens);
  } else {
    choice["text"] = (opens && request_.echo ? prompt_of(index).text : "") + delta.content;
    if (request_.logprobs >= 0)
      choice["logprobs"] = text_logprobs(model_.tokenizer(), tokens, request_.logprobs, made.characters);
  }
  made.called += delta.calls.size();
  auto object = head_.object(true);
  object["choices"].push_back(std::move(choice));
  send(object);
}

void Generation::give_end(size_t index) {
  const Made& made = answers_[index];
  nlohmann::json choice{{"index", index},
                        {"logprobs", nullptr},
                        {"finish_reason", finish_reason(made.end->end, made.called > 0)}};
  if (request_.chat)
    choice["delta"] = nlohmann::json::object();
  else
    choice["text"] = "";
  auto object = head_.object(true);
  object["choices"].push_back(std::move(choice));
  send(object);
}

void Generation::send(const nlohmann::json& object) {
  if (!exchange_->begun()) exchange_->begin({.type = "text/event-stream"});
  auto whole = object;
  if (request_.include_usage && !whole.contains("usage")) whole["usage"] = nullptr;
  exchange_->send("data: " + json_text(whole) + "\n\n");
}

/// Without a stream: one of the answers.
nlohmann::json Generation::choice(size_t index) {
  Made& made = answers_[index];
  nlohmann::json choice{{"index", index},
                        {"logprobs", nullptr},
                        {"finish_reason", finish_reason(made.end->end, made.called > 0)}};
  if (!request_.chat) {
    choice["text"] = (request_.echo ? prompt_of(index).text : "") + made.text;
    if (request_.logprobs >= 0)
      choice["logprobs"] = text_logprobs(model_.tokenizer(), made.tokens, request_.logprobs, made.characters);
    return choice;
  }
  nlohmann::json message{{"role", "assistant"}, {"content", made.text}, {"refusal", nullptr}};
  if (!made.thinking.empty()) message["reasoning_content"] = made.thinking;
  if (!made.calls.empty()) {
    message["tool_calls"] = calls_json(made.calls);
    if (made.text.empty()) message["content"] = nullptr;
  }
  choice["message"] = std::move(message);
  if (request_.logprobs >= 0) choice["logprobs"] = chat_logprobs(model_.tokenizer(), made.tokens);
  return choice;
}

/// Without a stream: all answers.
HttpReply Generation::whole_reply() {
  auto object = head_.object(false);
  for (size_t i = 0; i < answers_.size(); ++i) object["choices"].push_back(choice(i));
  object["usage"] = usage_json(usage_);
  return {.body = json_text(object)};
}

void Generation::finish() {
  written_ = true;
  if (!request_.stream && request_.logprobs >= 0) {
    // Log probabilities of many tokens take seconds to write, in which nobody else would be heard.
    return aside_([self = shared_from_this()] {
      HttpReply reply;
      try {
        reply = self->whole_reply();
      } catch (...) {
        reply = reply_of(std::current_exception());
      }
      self->server_.post([self, reply = std::move(reply)]() mutable {
        self->done_ = true;
        self->exchange_->reply(std::move(reply));
      });
    });
  }
  done_ = true;
  if (!request_.stream) return exchange_->reply(whole_reply());
  if (request_.include_usage) {
    auto object = head_.object(true);
    object["usage"] = usage_json(usage_);
    send(object);
  }
  exchange_->send("data: [DONE]\n\n");
  exchange_->finish();
}

void Generation::look_after(Clock::time_point now) {
  if (done_ || now < until_) return;
  const bool started = std::ranges::any_of(answers_, [](const Made& one) { return one.feed->made() > 0; });
  stop(started ? server_error(504, "the answer takes longer than requests may take here.")
               : server_error(503, "the server is busy: the answer did not begin in time."));
}

int64_t Generation::made_tokens() const {
  int64_t made = usage_.made;
  for (const Made& one : answers_)
    if (!one.end) made += one.feed->made();
  return made;
}

void Generation::stop(const ApiError& why) {
  if (done_) return;
  cancel();
  if (!exchange_->begun()) return exchange_->reply(why.reply());
  exchange_->send("data: " + why.reply().body + "\n");
  exchange_->finish();
}

void Generation::cancel() {
  done_ = true;
  for (const Made& made : answers_)
    if (!made.end) model_.cancel(made.ticket);
}

}  // namespace tightloop::serve
