#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/threads.h"
#include "serve/engine/served_model.h"
#include "serve/engine/served_translator.h"
#include "serve/generation.h"
#include "serve/http/access.h"
#include "serve/http/http_server.h"
#include "serve/metrics.h"
#include "serve/serve_config.h"

namespace tightloop::serve {

/// Answers requests in the shape of OpenAI's API (docs/serving.md). Threads: run() reads and writes for all
/// connections, each model computes on its own, and some render and tokenize prompts.
class Server {
 public:
  /// Listens, and answers nobody before run(). A usage error where the address cannot be had, or is open to
  /// others and there is no key.
  Server(const ServeConfig& config, std::string key);
  ~Server();

  void add(std::unique_ptr<ServedModel> model);
  void add(std::unique_ptr<ServedTranslator> translator);
  int port() const { return http_.port(); }
  std::string url() const;

  /// Serves until `stop`, which is asked several times a second; then drains: nothing new is taken, and what
  /// runs has config.drain_seconds to end. True where all of it did.
  bool run(const std::function<bool()>& stop);

 private:
  using Clock = Generation::Clock;
  using Asked = std::shared_ptr<Exchange>;
  struct Route;
  static const std::vector<Route>& routes();
  /// Null where there is nothing at this path.
  static const Route* route_at(std::string_view asked);

  void handle(const Asked& asked);
  void watch(const Asked& asked, const std::string& endpoint);
  bool tick(const std::function<bool()>& stop);
  bool busy() const { return !generations_.empty() || !jobs_.empty() || preparing_ > 0; }
  /// Does `prepare` on another thread; what it returns is done on the server's. An ApiError of it is the
  /// reply.
  void prepare(const Asked& asked, std::function<std::function<void()>()> work);
  /// Another thread will answer, as long as this is `wanted`; at the deadline that is done without it.
  using Wanted = std::shared_ptr<std::atomic<bool>>;
  void wait_for(const Asked& asked, const Wanted& wanted = std::make_shared<std::atomic<bool>>(true));
  bool admit(const Asked& asked, size_t answers);

  ServedModel& model_named(const std::string& name) const;
  ServedTranslator& translator_named(const std::string& name) const;

  void give_page(const Asked& asked);
  void give_health(const Asked& asked);
  void give_metrics(const Asked& asked);
  void give_models(const Asked& asked);
  void generate(const Asked& asked);
  void score(const Asked& asked);
  void embed(const Asked& asked);
  void translate(const Asked& asked);

  const ServeConfig config_;
  const AccessRules rules_;
  HttpServer http_;
  std::vector<std::unique_ptr<ServedModel>> models_;
  std::vector<std::unique_ptr<ServedTranslator>> translators_;
  // The server's thread alone touches these.
  std::vector<std::shared_ptr<Generation>> generations_;
  struct Job {
    Asked asked;
    Wanted wanted;
    Clock::time_point until;
  };
  std::vector<Job> jobs_;
  size_t preparing_ = 0;
  bool draining_ = false, drained_ = true;
  Clock::time_point drain_until_{};
  RequestCounts counts_;
  BoundedQueue<std::function<void()>> work_;
  std::vector<std::jthread> workers_;  // last: they end first
};

}  // namespace tightloop::serve
