// What the server says about itself.
#include <fmt/format.h>

#include <algorithm>

#include "serve/api/fields.h"
#include "serve/page/chat_page.h"
#include "serve/server.h"

namespace tightloop::serve {

namespace {

template <class Kind>
nlohmann::json model_json(const Kind& model, const char* kind) {
  return {{"id", model.name()},
          {"object", "model"},
          {"created", model.created()},
          {"owned_by", "tightloop"},
          {"max_model_len", model.context()},
          {"kind", kind}};
}

/// A line of metrics for each model.
class MetricLines {
 public:
  void begin(const char* name, const char* type, const char* help) {
    name_ = name;
    text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  void add(const std::string& model, int64_t value) {
    text += fmt::format("{}{{model=\"{}\"}} {}\n", name_, label_value(model), value);
  }
  std::string text;

 private:
  std::string name_;
};

}  // namespace

void Server::give_page(const Asked& asked) {
  ChatPage page = chat_page();
  asked->reply({.type = "text/html; charset=utf-8",
                .body = std::move(page.html),
                .headers = {{"Content-Security-Policy", std::move(page.policy)}}});
}

void Server::give_health(const Asked& asked) {
  asked->reply({.status = draining_ ? 503 : 200,
                .body = draining_ ? "{\"status\":\"draining\"}\n" : "{\"status\":\"ok\"}\n"});
}

void Server::give_models(const Asked& asked) {
  std::vector<nlohmann::json> all;
  for (const auto& one : models_) all.push_back(model_json(*one, one->chat() ? "chat" : "text"));
  for (const auto& one : translators_) all.push_back(model_json(*one, "translation"));
  constexpr std::string_view kList = "/v1/models";
  const std::string& path = asked->call().path;
  if (path == kList) return asked->reply({.body = json_text({{"object", "list"}, {"data", all}}) + "\n"});
  const std::string name = path.substr(kList.size() + 1);
  for (const auto& one : all)
    if (one["id"] == name) return asked->reply({.body = json_text(one) + "\n"});
  throw ApiError{
      .status = 404,
      .message = fmt::format("there is no model '{}' here; GET /v1/models lists them.", name.substr(0, 100)),
      .param = "model",
      .code = "model_not_found"};
}

void Server::give_metrics(const Asked& asked) {
  MetricLines lines;
  const auto for_all = [&](const char* name, const char* type, const char* help,
                           int64_t DecoderLoad::*value) {
    lines.begin(name, type, help);
    for (const auto& one : models_) lines.add(one->name(), one->load().*value);
  };
  lines.begin("tightloop_requests_total", "counter",
              "Requests by endpoint and status (499: the client went away).");
  lines.text += counts_.text();
  lines.begin("tightloop_connections", "gauge", "Open connections.");
  lines.text += fmt::format("tightloop_connections {}\n", http_.connections());
  lines.begin("tightloop_draining", "gauge", "1 while the server is shutting down.");
  lines.text += fmt::format("tightloop_draining {}\n", draining_ ? 1 : 0);
  for_all("tightloop_running", "gauge", "Answers that are being decoded.", &DecoderLoad::running);
  for_all("tightloop_waiting", "gauge", "Answers that wait for their turn.", &DecoderLoad::waiting);
  for_all("tightloop_cache_tokens_used", "gauge", "Tokens of running answers in the cache.",
          &DecoderLoad::cache_tokens_used);
  for_all("tightloop_cache_tokens", "gauge", "Tokens that the cache has room for.",
          &DecoderLoad::cache_tokens);
  for_all("tightloop_prompt_tokens_total", "counter", "Tokens of prompts that were read.",
          &DecoderLoad::read_tokens);
  for_all("tightloop_shared_tokens_total", "counter", "Tokens of prompts that had been read before.",
          &DecoderLoad::shared_tokens);
  for_all("tightloop_made_tokens_total", "counter", "Tokens of answers.", &DecoderLoad::made_tokens);
  for_all("tightloop_preemptions_total", "counter",
          "Answers that gave their room in the cache back for a while.", &DecoderLoad::preemptions);
  const auto histograms = [&](const char* name, const char* help, TimeHistogram AnswerTimes::*histogram) {
    lines.begin(name, "histogram", help);
    for (const auto& one : models_)
      lines.text +=
          (one->times().*histogram).text(name, fmt::format("model=\"{}\"", label_value(one->name())));
  };
  histograms("tightloop_time_to_first_token_seconds", "From a request to the first token of its answer.",
             &AnswerTimes::first_token);
  histograms("tightloop_time_between_tokens_seconds", "From one token of an answer to the next.",
             &AnswerTimes::between_tokens);
  asked->reply({.type = "text/plain; version=0.0.4; charset=utf-8", .body = std::move(lines.text)});
}

}  // namespace tightloop::serve
