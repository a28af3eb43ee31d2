// What happens where clients or requests are not as one would like them.
#include <set>

#include "fuzz.h"
#include "serve/served.h"

namespace tightloop {
namespace {

using nlohmann::json;
using testing::completion;
using testing::HttpClient;
using testing::ServedTiny;

TEST(ServerLimits, AClientThatGoesAwayGivesItsPlaceBack) {
  ServedTiny served({.running = 2});
  for (const bool stream : {true, false}) {
    HttpClient client(served.port());
    client.send(testing::http_request("POST", "/v1/completions",
                                      completion("Once", 3000, {{"stream", stream}, {"n", 2}}).dump()));
    ASSERT_TRUE(served.reaches([](const DecoderLoad& load) { return load.running == 2; }));
    if (stream) client.read_until("data: ");  // it had begun
    client.close();
    EXPECT_TRUE(served.reaches([](const DecoderLoad& load) { return load.running == 0; }));
    EXPECT_LT(served.model().load().made_tokens, 10000);
  }
  const std::string metrics = served.get("/metrics").body;
  EXPECT_NE(metrics.find("{endpoint=\"/v1/completions\",code=\"499\"} 2\n"), std::string::npos) << metrics;
}

TEST(ServerLimits, ASlowReaderIsCutOffAndHoldsNobodyUp) {
  ServedTiny served({.choices = 16, .stream_kib = 64});
  HttpClient slow(served.port(), /*receive_buffer=*/4096);
  slow.send(testing::http_request(
      "POST", "/v1/completions",
      completion("Once", 3000, {{"stream", true}, {"n", 16}, {"logprobs", 20}}).dump()));
  ASSERT_TRUE(served.reaches([](const DecoderLoad& load) { return load.running == 16; }));
  EXPECT_EQ(served.post("/v1/completions", completion("Once", 10)).status, 200);
  EXPECT_TRUE(served.reaches([](const DecoderLoad& load) { return load.running == 0; }));
  EXPECT_LT(served.model().load().made_tokens, 16 * 3000) << "it was cut off before the end";
  EXPECT_EQ(slow.read_to_end().find("[DONE]"), std::string::npos);
}

TEST(ServerLimits, WhoComesWhenTheQueueIsFullIsToldToComeAgain) {
  ServedTiny served({.queue = 0, .running = 1});
  HttpClient first(served.port());
  first.send(testing::http_request("POST", "/v1/completions", completion("Once", 3000).dump()));
  ASSERT_TRUE(served.reaches([](const DecoderLoad& load) { return load.running == 1; }));
  const auto second = served.post("/v1/completions", completion("Once", 3));
  EXPECT_EQ(second.status, 429);
  EXPECT_NE(second.head.find("Retry-After: "), std::string::npos);
  EXPECT_EQ(second.json()["error"]["type"], "rate_limit_error");
  EXPECT_EQ(served.get("/health").status, 200);
  first.close();
  ASSERT_TRUE(served.reaches([](const DecoderLoad& load) { return load.running == 0; }));
}

TEST(ServerLimits, ConnectionsAndTimesAreLimited) {
  {
    ServedTiny served({.connections = 2, .receive_seconds = 1.5});
    HttpClient one(served.port()), two(served.port());
    one.send("GET /he"), two.send("GET /he");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    HttpClient three(served.port());
    three.send(testing::http_request("GET", "/health"));
    const auto full = testing::parsed_answer(three.read_to_end());
    EXPECT_EQ(full.status, 503);
    EXPECT_TRUE(full.json().contains("error")) << full.body;
    EXPECT_EQ(testing::parsed_answer(one.read_to_end()).status, 408);
    EXPECT_EQ(testing::parsed_answer(two.read_to_end()).status, 408);
    EXPECT_EQ(served.get("/health").status, 200);
  }
  ServedTiny served({.request_seconds = 1, .running = 1});
  const json endless = completion("Once", 3000, {{"n", 16}});  // 16 answers, one after another
  std::vector<std::unique_ptr<HttpClient>> clients;
  std::multiset<int> statuses;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<HttpClient>(served.port()));
    clients.back()->send(testing::http_request("POST", "/v1/completions", endless.dump()));
  }
  for (const auto& client : clients) statuses.insert(testing::parsed_answer(client->read_to_end()).status);
  EXPECT_GE(statuses.count(503), 1u) << "it had not begun";
  EXPECT_GE(statuses.count(504), 1u) << "it had";
  EXPECT_EQ(statuses.count(503) + statuses.count(504), 4u);
}

TEST(ServerLimits, DrainsBeforeItEnds) {
  ServedTiny served;
  HttpClient client(served.port());
  client.send(
      testing::http_request("POST", "/v1/completions", completion("Once", 3000, {{"stream", true}}).dump()));
  client.read_until("data: ");
  served.ask_to_stop();
  testing::HttpAnswered health;
  for (int i = 0; i < 50 && health.status != 503; ++i) health = served.get("/health");
  EXPECT_EQ(health.json(), (json{{"status", "draining"}}));
  EXPECT_EQ(served.post("/v1/completions", completion("Once", 3)).status, 503);
  EXPECT_NE(client.read_to_end().find("[DONE]"), std::string::npos);
  EXPECT_TRUE(served.stop());
}

TEST(ServerLimits, WhatDoesNotEndInTimeIsCutOffWithAReason) {
  ServedTiny served({.choices = 16, .drain_seconds = 0.1, .running = 1});
  HttpClient client(served.port());
  client.send(testing::http_request("POST", "/v1/completions",
                                    completion("Once", 3000, {{"stream", true}, {"n", 16}}).dump()));
  client.read_until("data: ");
  EXPECT_FALSE(served.stop());
  const std::string& got = client.read_to_end();
  EXPECT_NE(got.find("the server is shutting down"), std::string::npos);
  EXPECT_EQ(got.find("[DONE]"), std::string::npos);
}

TEST(ServerLimits, AKeyIsAskedFor) {
  ServedTiny served({}, "secret");
  EXPECT_EQ(served.get("/health").status, 200);
  EXPECT_EQ(served.get("/").status, 200);
  for (const char* path : {"/v1/models", "/metrics"}) {
    EXPECT_EQ(served.get(path).status, 401);
    EXPECT_EQ(served.get(path, "Authorization: Bearer wrong\r\n").status, 401);
    EXPECT_EQ(served.get(path, "Authorization: Bearer secret\r\n").status, 200);
  }
  const auto refused = served.post("/v1/completions", completion("Once", 3));
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.json()["error"]["code"], "invalid_api_key");
  EXPECT_EQ(served.post("/v1/completions", completion("Once", 3), "Authorization: Bearer secret\r\n").status,
            200);
}

TEST(ServerLimits, OpenAddressesAndPortsInUseAreRefused) {
  const auto open =
      testing::error_of(ExitCode::kUsage, [] { serve::Server({.host = "0.0.0.0", .port = 0}, ""); });
  EXPECT_NE(open.find("--api-key-file"), std::string::npos) << open;
  serve::Server({.host = "0.0.0.0", .port = 0}, "key");
  ServedTiny served;
  const auto used = testing::error_of(ExitCode::kUsage, [&] { serve::Server({.port = served.port()}, ""); });
  EXPECT_NE(used.find("--port"), std::string::npos) << used;
  testing::error_of(ExitCode::kUsage, [&] { serve::Server({.host = "no.such.host.invalid"}, "key"); });
}

/// Cannot say what some of its tokens are when they stand alone.
class FailingTokenizer : public testing::ByteTokenizer {
 public:
  using ByteTokenizer::ByteTokenizer;
  std::string decode(std::span<const int32_t> ids) const override {
    if (ids.size() == 1) throw data_error("nobody knows token {}.", ids[0]);
    return ByteTokenizer::decode(ids);
  }
};

TEST(ServerLimits, WhatFailsOnTheServersThreadEndsOneAnswerAndNotTheServer) {
  auto run = ServedTiny::loaded();
  run.tokenizer = std::make_unique<FailingTokenizer>(std::vector<std::string>{"<|im_start|>", "<|im_end|>"});
  ServedTiny served({}, "", std::move(run));
  const auto answer = served.post("/v1/completions", completion("Once", 20, {{"logprobs", 2}, {"n", 2}}));
  EXPECT_EQ(answer.status, 500);
  EXPECT_NE(answer.json()["error"]["message"].get<std::string>().find("nobody knows"), std::string::npos);
  const auto stream =
      served.post("/v1/completions", completion("Once", 2000, {{"logprobs", 2}, {"stream", true}}));
  EXPECT_NE(stream.body.find("nobody knows"), std::string::npos) << stream.body;
  EXPECT_TRUE(served.reaches([](const DecoderLoad& load) { return load.running + load.waiting == 0; }));
  EXPECT_EQ(served.post("/v1/completions", completion("Once", 20)).status, 200);
}

class SlowTokenizer : public testing::ByteTokenizer {
 public:
  using ByteTokenizer::ByteTokenizer;
  std::string decode(std::span<const int32_t> ids) const override {
    if (ids.size() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return ByteTokenizer::decode(ids);
  }
};

TEST(ServerLimits, OthersAreAnsweredWhileALongAnswerIsWritten) {
  auto run = ServedTiny::loaded();
  run.tokenizer = std::make_unique<SlowTokenizer>(std::vector<std::string>{"<|im_start|>", "<|im_end|>"});
  ServedTiny served({}, "", std::move(run));
  HttpClient client(served.port());
  client.send(
      testing::http_request("POST", "/v1/completions", completion("Once", 100, {{"logprobs", 20}}).dump()));
  ASSERT_TRUE(
      served.reaches([](const DecoderLoad& load) { return load.made_tokens == 100 && load.running == 0; }));
  EXPECT_EQ(served.get("/health").status, 200);
  const std::string early = client.read_some_within(0);
  EXPECT_EQ(early, "") << "the other one was to be quicker";
  EXPECT_EQ(testing::parsed_answer(client.read_to_end()).json()["choices"][0]["logprobs"]["tokens"].size(),
            100u);
}

// Whatever comes in, the server is there afterwards, and nothing is left running.
TEST(ServerLimits, FuzzedRequestsOverASocketLeaveTheServerWell) {
  ServedTiny served({.max_tokens = 40, .choices = 4});
  const std::string before = served.post("/v1/completions", completion("Once", 20)).json()["choices"].dump();
  const json chat{
      {"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 5}, {"stream", true}, {"n", 2}};
  const std::vector<std::string> seeds{
      testing::http_request("POST", "/v1/completions", completion("Once", 5, {{"stream", true}}).dump()),
      testing::http_request("POST", "/v1/chat/completions", chat.dump()),
      testing::http_request("POST", "/v1/score", R"({"text": "The cat."})"),
      testing::http_request("POST", "/v1/embeddings", R"({"input": ["a", "b"]})"),
      testing::http_request("GET", "/v1/models/tiny") + testing::http_request("GET", "/metrics")};
  const std::vector<std::string> words{"\r\n\r\n", "\xff",  "%00",       "null",
                                       "[",        "1e400", "\"n\": 3,", "Host: a\r\n"};
  testing::fuzz(seeds, testing::fuzz_runs(2000) / 10 + 200, words, [&](std::string& bytes, Random& random) {
    HttpClient client(served.port());
    client.send(bytes);
    if (random.below(2)) client.read_some_within(20);
  });
  EXPECT_TRUE(served.reaches([](const DecoderLoad& load) { return load.running + load.waiting == 0; }));
  EXPECT_EQ(served.post("/v1/completions", completion("Once", 20)).json()["choices"].dump(), before);
  EXPECT_EQ(served.get("/health").status, 200);
}

}  // namespace
}  // namespace tightloop
