#include "serve/server.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <limits>

#include "core/error.h"
#include "core/log.h"
#include "serve/api/fields.h"

namespace tightloop::serve {

namespace {

constexpr int kWorkers = 4;

std::chrono::milliseconds in_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

HttpOptions http_options(const ServeConfig& config) {
  return {.host = config.host,
          .port = static_cast<int>(config.port),
          .call = {.head_bytes = static_cast<size_t>(config.head_kib) << 10,
                   .body_bytes = static_cast<size_t>(config.body_kib) << 10},
          .connections = static_cast<size_t>(config.connections),
          .unsent_bytes = static_cast<size_t>(config.stream_kib) << 10,
          .receive = in_milliseconds(config.receive_seconds),
          .idle = in_milliseconds(config.idle_seconds),
          .send = in_milliseconds(config.send_seconds)};
}

/// Before the port is taken.
AccessRules access_rules(const ServeConfig& config, std::string key) {
  if (key.empty() && !is_loopback(config.host))
    throw usage_error(
        "--host {} can be reached from other machines: give a key that requests must bring, by "
        "--api-key-file "
        "FILE or $TIGHTLOOP_API_KEY, or listen at 127.0.0.1.",
        config.host);
  if (!config.cors.empty() && !is_origin(config.cors))
    throw usage_error(
        "--cors {} is no origin: the scheme, host and port of one, such as https://chat.example or "
        "http://localhost:3000, without a path.",
        config.cors);
  return {.host = config.host, .key = std::move(key), .cors = config.cors};
}

template <class Kind>
const std::unique_ptr<Kind>* find_named(const std::vector<std::unique_ptr<Kind>>& all,
                                        const std::string& name) {
  const auto found = std::ranges::find(all, name, [](const auto& one) { return one->name(); });
  return found == all.end() ? nullptr : &*found;
}

ApiError no_such_model(const std::string& name, const char* advice) {
  return {.status = 404,
          .message = fmt::format("there is no model '{}' here{}", name.substr(0, 100), advice),
          .param = "model",
          .code = "model_not_found"};
}

}  // namespace

struct Server::Route {
  const char* method;
  const char* path;  // that ends with / : and what is below
  bool open;         // needs no key
  bool works;        // not while draining
  void (Server::*answer)(const Asked&);
};

const std::vector<Server::Route>& Server::routes() {
  static const std::vector<Route> kRoutes{
      {"GET", "/", true, false, &Server::give_page},
      {"GET", "/health", true, false, &Server::give_health},
      {"GET", "/metrics", false, false, &Server::give_metrics},
      {"GET", "/v1/models", false, false, &Server::give_models},
      {"GET", "/v1/models/", false, false, &Server::give_models},
      {"POST", "/v1/chat/completions", false, true, &Server::generate},
      {"POST", "/v1/completions", false, true, &Server::generate},
      {"POST", "/v1/score", false, true, &Server::score},
      {"POST", "/v1/embeddings", false, true, &Server::embed},
      {"POST", "/translate", false, true, &Server::translate},
  };
  return kRoutes;
}

const Server::Route* Server::route_at(std::string_view asked) {
  const auto found = std::ranges::find_if(routes(), [&](const Route& one) {
    const std::string_view path = one.path;
    const bool below = path.size() > 1 && path.ends_with('/');
    return below ? asked.starts_with(path) && asked.size() > path.size() : asked == path;
  });
  return found == routes().end() ? nullptr : &*found;
}

Server::Server(const ServeConfig& config, std::string key)
    : config_(config),
      rules_(access_rules(config, std::move(key))),
      http_(
          http_options(config), [this](const Asked& asked) { handle(asked); },
          [this](const Asked& asked) { watch(asked, "other"); }),
      work_(std::numeric_limits<size_t>::max()) {
  for (int i = 0; i < kWorkers; ++i)
    workers_.emplace_back([this] {
      while (const auto work = work_.pop()) (*work)();
    });
}

Server::~Server() { work_.close(); }

void Server::add(std::unique_ptr<ServedModel> model) { models_.push_back(std::move(model)); }
void Server::add(std::unique_ptr<ServedTranslator> translator) {
  translators_.push_back(std::move(translator));
}

std::string Server::url() const {
  const bool six = config_.host.find(':') != std::string::npos && !config_.host.starts_with('[');
  return fmt::format(fmt::runtime(six ? "http://[{}]:{}" : "http://{}:{}"), config_.host, port());
}

ServedModel& Server::model_named(const std::string& name) const {
  if (name.empty() && models_.size() == 1) return *models_.front();
  if (const auto* found = find_named(models_, name)) return **found;
  if (find_named(translators_, name))
    throw no_such_model(name, " that continues texts: it translates (/translate).");
  if (name.empty())
    throw ApiError{.message = "'model' is missing; GET /v1/models lists them.", .param = "model"};
  throw no_such_model(name, "; GET /v1/models lists them.");
}

ServedTranslator& Server::translator_named(const std::string& name) const {
  if (name.empty() && translators_.size() == 1) return *translators_.front();
  if (const auto* found = find_named(translators_, name)) return **found;
  throw no_such_model(name, " that translates; GET /v1/models lists them.");
}

/// When the request is over it is counted, and logged.
void Server::watch(const Asked& asked, const std::string& endpoint) {
  asked->on_done = [this, endpoint, weak = std::weak_ptr(asked)] {
    const auto done = weak.lock();
    if (!done) return;
    constexpr int kClientGone = 499;
    const int status = done->status() ? done->status() : kClientGone;
    counts_.add(endpoint, status);
    if (!config_.log) return;
    const auto took = std::chrono::duration<double, std::milli>(Clock::now() - done->began()).count();
    std::string tokens;
    for (const auto& one : generations_)
      if (one->exchange() == done)
        tokens = fmt::format(", {} + {} tokens", one->usage().prompt, one->made_tokens());
    const std::string& method = done->call().method;
    log::info("{:%Y-%m-%d %H:%M:%S} {} {} {}, {}{:.0f} ms{}", fmt::localtime(std::time(nullptr)),
              method.empty() ? "unread" : method, endpoint, status,
              done->model.empty() ? "" : done->model + ", ", took, tokens);
  };
}

void Server::handle(const Asked& asked) {
  const HttpCall& call = asked->call();
  const Route* const there = route_at(call.path);
  const bool gets = there && std::string_view(there->method) == "GET";
  const bool takes = there && (call.method == there->method || (gets && call.method == "HEAD"));
  watch(asked, takes ? there->path : "other");
  try {
    if (const auto refusal = check_origin(call, rules_); refusal.status)
      throw ApiError{.status = refusal.status, .message = refusal.why};
    asked->extra_headers = cors_headers(call, rules_);
    if (call.method == "OPTIONS" && there) return asked->reply({.status = 204});
    if (!there)
      throw ApiError{.status = 404,
                     .message = route_at("/v1" + call.path)
                                    ? fmt::format("there is nothing at this path; ask /v1{}.", call.path)
                                    : "there is nothing at this path.",
                     .code = "not_found"};
    if (!takes) {
      asked->extra_headers.emplace_back("Allow",
                                        there->method + std::string(gets ? ", HEAD" : "") + ", OPTIONS");
      throw ApiError{
          .status = 405,
          .message = fmt::format("this path does not take {}: ask by {}.", call.method, there->method)};
    }
    if (!there->open && !has_key(call, rules_))
      throw ApiError{.status = 401,
                     .message =
                         "the API key is missing or wrong; requests bring it in a header: "
                         "\"Authorization: Bearer KEY\".",
                     .code = "invalid_api_key",
                     .type = "authentication_error"};
    if (draining_ && there->works)
      throw ApiError{.status = 503, .message = "the server is shutting down.", .type = "server_error"};
    (this->*there->answer)(asked);
  } catch (...) {
    asked->reply(reply_of(std::current_exception()));
  }
}

/// Whether there is room for so many answers more.
bool Server::admit(const Asked& asked, size_t answers) {
  size_t running = preparing_ + jobs_.size();
  for (const auto& one : generations_) running += one->answers();
  const auto most = static_cast<size_t>(config_.running + config_.queue);
  if (running + answers <= most) return true;
  if (answers > most) {
    asked->reply(
        wrong_field("n", "{} answers are more than the {} that may run and wait here.", answers, most)
            .reply());
    return false;
  }
  asked->reply(ApiError{.status = 429,
                        .message = "too many requests wait already; try again in a moment.",
                        .code = "queue_full",
                        .type = "rate_limit_error"}
                   .reply());
  return false;
}

void Server::prepare(const Asked& asked, std::function<std::function<void()>()> work) {
  if (!admit(asked, 1)) return;
  ++preparing_;
  work_.push([this, asked, work = std::move(work)] {
    std::function<void()> next;
    try {
      next = work();
    } catch (...) {
      next = [asked, reply = reply_of(std::current_exception())] { asked->reply(reply); };
    }
    http_.post([this, asked, next = std::move(next)] {
      --preparing_;
      if (!asked->open()) return;
      try {
        next();
      } catch (...) {
        asked->reply(reply_of(std::current_exception()));
      }
    });
  });
}

void Server::wait_for(const Asked& asked, const Wanted& wanted) {
  asked->on_lost = [wanted](Exchange::Lost) { *wanted = false; };
  jobs_.push_back({asked, wanted, asked->began() + in_milliseconds(config_.request_seconds)});
}

void Server::generate(const Asked& asked) {
  prepare(asked, [this, asked]() -> std::function<void()> {
    const HttpCall& call = asked->call();
    const RequestLimits limits{config_.max_tokens, config_.choices};
    const auto body = read_json_body(call.body);
    auto request =
        call.path == "/v1/completions" ? read_text_request(body, limits) : read_chat_request(body, limits);
    if (!request.max_tokens) request.max_tokens = config_.max_tokens;
    ServedModel& model = model_named(request.model);
    auto prompts = prompts_of(model, request, config_.prompt_tokens);
    const size_t answers = prompts.size() * static_cast<size_t>(request.n);
    const auto until = asked->began() + in_milliseconds(config_.request_seconds);
    const auto aside = [this](std::function<void()> work) { work_.push(std::move(work)); };
    const auto generation = std::make_shared<Generation>(http_, aside, asked, model, std::move(request),
                                                         std::move(prompts), until);
    return [this, asked, generation, answers] {
      if (!admit(asked, answers)) return;
      asked->model = generation->model();
      generations_.push_back(generation);
      generation->start();
    };
  });
}

bool Server::tick(const std::function<bool()>& stop) {
  const auto now = Clock::now();
  for (const auto& one : std::vector(generations_)) one->look_after(now);
  std::erase_if(generations_, [](const auto& one) { return one->done(); });
  const ApiError late{.status = 504,
                      .message = "the answer takes longer than requests may take here.",
                      .type = "server_error"};
  for (const Job& job : jobs_) {
    if (now < job.until || !job.asked->open()) continue;
    *job.wanted = false;
    job.asked->reply(late.reply());
  }
  std::erase_if(jobs_, [](const Job& job) { return !job.asked->open(); });
  if (!draining_ && stop()) {
    draining_ = true;
    drain_until_ = now + in_milliseconds(config_.drain_seconds);
    http_.close_after_answers();
    if (busy())
      log::info("Ending: requests that run have {:g} s. Another signal ends it at once.",
                config_.drain_seconds);
  }
  if (!draining_) return true;
  if (!busy()) return false;
  if (now < drain_until_) return true;
  const ApiError why{.status = 503, .message = "the server is shutting down.", .type = "server_error"};
  for (const auto& one : generations_) one->stop(why);
  for (const Job& job : jobs_) {
    *job.wanted = false;
    job.asked->reply(why.reply());
  }
  drained_ = false;
  return false;
}

bool Server::run(const std::function<bool()>& stop) {
  http_.run([&] { return tick(stop); });
  return drained_;
}

}  // namespace tightloop::serve
