#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "data/byte_tokenizer.h"
#include "infer/generate.h"
#include "model/language_model.h"
#include "serve/http_client.h"
#include "serve/server.h"

namespace tightloop::testing {

/// A request for a greedy text that does not end early.
inline nlohmann::json completion(const std::string& prompt, int64_t tokens,
                                 const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json body{{"model", "tiny"},
                      {"prompt", prompt},
                      {"max_tokens", tokens},
                      {"temperature", 0},
                      {"ignore_eos", true}};
  body.update(more);
  return body;
}

/// A server of this process with a tiny random model called "tiny", which knows bytes and ChatML.
class ServedTiny {
 public:
  explicit ServedTiny(serve::ServeConfig config = {}, const std::string& key = {}, LoadedRun run = loaded()) {
    config.port = 0;
    server_ = std::make_unique<serve::Server>(config, key);
    auto model = std::make_unique<serve::ServedModel>("tiny", std::move(run),
                                                      DecoderConfig{.cache_tokens = config.cache_tokens,
                                                                    .running = config.running,
                                                                    .prefill_tokens = config.prefill_tokens});
    model_ = model.get();
    server_->add(std::move(model));
    thread_ = std::jthread([this] { drained_ = server_->run([this] { return stop_.load(); }); });
  }
  ~ServedTiny() { stop(); }

  static LoadedRun loaded() {
    LoadedRun run;
    run.tokenizer = std::make_unique<ByteTokenizer>(std::vector<std::string>{"<|im_start|>", "<|im_end|>"});
    auto& model = run.recipe.model;
    model.layers = 2, model.width = 32, model.heads = 4, model.init_std = 0.3, model.context = 4096;
    model.resolve(run.tokenizer->vocab_size(), 0);
    run.recipe.chat.form = ChatForm::kChatml;
    run.recipe.train.threads = 1;
    run.metadata = nlohmann::json::object();
    run.model = make_model(model, 7);
    return run;
  }

  int port() const { return server_->port(); }
  serve::ServedModel& model() { return *model_; }
  HttpAnswered post(const std::string& path, const nlohmann::json& body, const std::string& headers = "") {
    return ask(port(), "POST", path, body.dump(), headers);
  }
  HttpAnswered get(const std::string& path, const std::string& headers = "") {
    return ask(port(), "GET", path, "", headers);
  }
  void ask_to_stop() { stop_ = true; }
  /// Whether all requests ended in time.
  bool stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return drained_;
  }
  /// Waits for something that the decoder's load says.
  template <class Condition>
  bool reaches(const Condition& condition) {
    for (int i = 0; i < 1000; ++i) {
      if (condition(model_->load())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }

 private:
  std::unique_ptr<serve::Server> server_;
  serve::ServedModel* model_ = nullptr;
  std::atomic<bool> stop_ = false, drained_ = false;
  std::jthread thread_;
};

}  // namespace tightloop::testing
