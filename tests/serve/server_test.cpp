#include "serve/server.h"

#include "infer/text_loss.h"
#include "serve/served.h"
#include "tokenizer/jinja/template_files.h"

namespace tightloop {
namespace {

using nlohmann::json;
using testing::completion;
using testing::HttpClient;
using testing::ServedTiny;

/// What the model says by itself.
std::string alone(const std::string& prompt, SamplingConfig sampling, uint64_t sample = 0,
                  bool ends = false) {
  const auto run = ServedTiny::loaded();
  const Prompt asked{run.tokenizer->encode(prompt), sample};
  GenerateOptions options;
  options.sampling = sampling, options.vocab_size = run.tokenizer->vocab_size();
  if (ends) options.stop_tokens = stop_tokens(run);
  return run.tokenizer->decode(generate(*run.model, {&asked, 1}, options)[0].ids);
}

/// As JSON shows it: bytes that are no UTF-8 become U+FFFD.
std::string shown(const std::string& text) { return json::parse(serve::json_text(text)).get<std::string>(); }

std::string error_code(const testing::HttpAnswered& answer) {
  const auto body = answer.json();
  EXPECT_TRUE(body.is_object() && body.contains("error") && body["error"].contains("message") &&
              body["error"].contains("type") && body["error"].contains("param") &&
              body["error"].contains("code"))
      << answer.body;
  return body["error"]["code"].is_string() ? body["error"]["code"].get<std::string>() : "";
}

TEST(Server, SaysWhatItIs) {
  ServedTiny served;
  EXPECT_EQ(served.get("/health").json(), (json{{"status", "ok"}}));
  const auto models = served.get("/v1/models").json();
  ASSERT_EQ(models["data"].size(), 1u);
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  EXPECT_EQ(models["data"][0]["object"], "model");
  EXPECT_EQ(served.get("/v1/models/tiny").json(), models["data"][0]);
  EXPECT_EQ(error_code(served.get("/v1/models/other")), "model_not_found");
  const auto page = served.get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.head.find("text/html"), std::string::npos);
  for (const char* path :
       {"/nothing", "/../etc/passwd", "/v1/models/../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd",
        "/v1/models/%2e%2e%2fetc%2fpasswd", "//etc/passwd", "/v1"}) {
    const auto answer = served.get(path);
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_EQ(answer.body.find("root:"), std::string::npos);
  }
  EXPECT_EQ(models["data"][0]["kind"], "chat");
  const auto message = [](const testing::HttpAnswered& answer) {
    return answer.json()["error"]["message"].get<std::string>();
  };
  const auto got = served.get("/v1/chat/completions"), put = served.post("/health", {{"a", 1}});
  EXPECT_EQ(got.status, 405);
  EXPECT_NE(got.head.find("Allow: POST, OPTIONS\r\n"), std::string::npos) << got.head;
  EXPECT_EQ(message(got), "this path does not take GET: ask by POST.");
  EXPECT_EQ(put.status, 405);
  EXPECT_NE(put.head.find("Allow: GET, HEAD, OPTIONS\r\n"), std::string::npos) << put.head;
  const auto without = served.post("/chat/completions", {{"a", 1}});
  EXPECT_EQ(without.status, 404);
  EXPECT_EQ(message(without), "there is nothing at this path; ask /v1/chat/completions.");
  EXPECT_EQ(message(served.get("/models/tiny")), "there is nothing at this path; ask /v1/models/tiny.");
  EXPECT_EQ(message(served.get("/nothing")), "there is nothing at this path.");
}

TEST(Server, CompletionsAreWhatTheModelSaysAlone) {
  ServedTiny served;
  const SamplingConfig greedy{.max_tokens = 40, .temperature = 0};
  const auto answer = served.post("/v1/completions", completion("Once", 40));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const auto body = answer.json();
  EXPECT_EQ(body["choices"][0]["text"], shown(alone("Once", greedy)));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(body["usage"]["completion_tokens"], 40);
  EXPECT_EQ(body["usage"]["total_tokens"], 44);

  const json drawn{{"temperature", 0.9}, {"top_p", 0.95}, {"top_k", 20}, {"seed", 5}, {"n", 3}};
  const auto several = served.post("/v1/completions", completion("Once", 20, drawn)).json();
  for (uint64_t sample = 0; sample < 3; ++sample) {
    const SamplingConfig sampling{
        .max_tokens = 20, .temperature = 0.9, .top_k = 20, .top_p = 0.95, .seed = 5};
    EXPECT_EQ(several["choices"][sample]["text"], shown(alone("Once", sampling, sample)));
    EXPECT_EQ(several["choices"][sample]["index"], sample);
  }
  const auto two =
      served.post("/v1/completions", completion("", 5, {{"prompt", {"Once", "Twice"}}, {"echo", true}}))
          .json();
  EXPECT_TRUE(two["choices"][0]["text"].get<std::string>().starts_with("Once"));
  EXPECT_TRUE(two["choices"][1]["text"].get<std::string>().starts_with("Twice"));
  const auto ids =
      served.post("/v1/completions", completion("", 40, {{"prompt", {79, 110, 99, 101}}})).json();
  EXPECT_EQ(ids["choices"][0]["text"], body["choices"][0]["text"]);
}

TEST(Server, ChatsAreAskedInTheModelsForm) {
  ServedTiny served;
  const json body{
      {"model", "tiny"},
      {"messages", {{{"role", "system"}, {"content", "Be kind."}}, {{"role", "user"}, {"content", "Hi"}}}},
      {"temperature", 0},
      {"max_tokens", 30}};
  const auto answer = served.post("/v1/chat/completions", body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const std::string prompt =
      "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  const auto json = answer.json();
  EXPECT_EQ(json["choices"][0]["message"]["content"],
            shown(alone(prompt, {.max_tokens = 30, .temperature = 0}, 0, /*ends=*/true)));
  EXPECT_EQ(json["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_GT(json["usage"]["prompt_tokens"], 20);
  const auto again = served.post("/v1/chat/completions", body).json();
  EXPECT_EQ(again["choices"], json["choices"]);
}

TEST(Server, AModelOfTextsIsNoChat) {
  auto run = ServedTiny::loaded();
  run.recipe.data.source = DataSource::kText;  // and its tokenizer has ChatML's tokens all the same
  ServedTiny served({}, "", std::move(run));
  EXPECT_EQ(served.get("/v1/models").json()["data"][0]["kind"], "text");
  const auto chat =
      served.post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}});
  EXPECT_EQ(chat.status, 400);
  EXPECT_NE(chat.body.find("use /v1/completions"), std::string::npos) << chat.body;
  EXPECT_EQ(served.post("/v1/completions", completion("Once", 3)).status, 200);

  auto records = ServedTiny::loaded();
  records.recipe.data.source = DataSource::kJsonl;
  EXPECT_FALSE(has_seen_no_conversation(records));
  records.recipe.data.format = RecordFormat::kText;
  EXPECT_TRUE(has_seen_no_conversation(records));
  ChatTemplateFiles own;
  own.templates["default"] = "{{ messages[0].content }}";
  records.tokenizer->set_chat(own);
  ServedTiny bringing({}, "", std::move(records));
  EXPECT_EQ(bringing.get("/v1/models").json()["data"][0]["kind"], "chat") << "by a template of its own";
}

TEST(Server, AStreamSaysTheSameInPieces) {
  ServedTiny served;
  const auto whole = served.post("/v1/completions", completion("Once", 60, {{"logprobs", 2}})).json();
  const auto answer = served.post(
      "/v1/completions",
      completion("Once", 60,
                 {{"logprobs", 2}, {"stream", true}, {"stream_options", {{"include_usage", true}}}}));
  EXPECT_NE(answer.head.find("text/event-stream"), std::string::npos);
  const auto objects = testing::stream_objects(answer.body);
  ASSERT_GT(objects.size(), 3u);  // how many pieces there are depends on who is quicker
  EXPECT_EQ(objects.back(), "DONE");
  std::string text;
  json tokens = json::array(), offsets = json::array();
  for (size_t i = 0; i + 2 < objects.size(); ++i) {
    ASSERT_TRUE(objects[i].is_object()) << answer.body;
    EXPECT_TRUE(objects[i]["usage"].is_null());
    const auto& choice = objects[i]["choices"][0];
    text += choice["text"].get<std::string>();
    if (!choice["logprobs"].is_object()) continue;
    for (const auto& one : choice["logprobs"]["tokens"]) tokens.push_back(one);
    for (const auto& one : choice["logprobs"]["text_offset"]) offsets.push_back(one);
  }
  EXPECT_EQ(text, whole["choices"][0]["text"]);
  EXPECT_EQ(tokens, whole["choices"][0]["logprobs"]["tokens"]);
  EXPECT_EQ(tokens.size(), 60u);
  EXPECT_EQ(offsets, whole["choices"][0]["logprobs"]["text_offset"]);
  const auto& last = objects[objects.size() - 2];
  EXPECT_TRUE(last["choices"].empty());
  EXPECT_EQ(last["usage"]["completion_tokens"], 60);
  EXPECT_EQ(objects[objects.size() - 3]["choices"][0]["finish_reason"], "length");
}

TEST(Server, TextEndsBeforeTheFirstStopString) {
  ServedTiny served;
  const std::string text = alone("Once", {.max_tokens = 60, .temperature = 0});
  size_t at = 20;
  while (at + 3 < text.size() &&
         (static_cast<unsigned char>(text[at]) >= 0x80 || static_cast<unsigned char>(text[at + 1]) >= 0x80 ||
          static_cast<unsigned char>(text[at + 2]) >= 0x80))
    ++at;
  ASSERT_LT(at + 3, text.size());
  const std::string stop = text.substr(at, 3);
  const std::string expected = shown(text.substr(0, text.find(stop)));
  for (const bool stream : {false, true}) {
    const auto answer = served.post(
        "/v1/completions", completion("Once", 60, {{"stop", {"never there", stop}}, {"stream", stream}}));
    std::string made, reason;
    if (!stream) {
      made = answer.json()["choices"][0]["text"], reason = answer.json()["choices"][0]["finish_reason"];
    } else {
      for (const auto& object : testing::stream_objects(answer.body))
        if (object.is_object()) {
          made += object["choices"][0]["text"].get<std::string>();
          if (object["choices"][0]["finish_reason"].is_string())
            reason = object["choices"][0]["finish_reason"];
        }
    }
    EXPECT_EQ(made, expected);
    EXPECT_EQ(reason, "stop");
  }
}

TEST(Server, ErrorsAreOpenAIs) {
  ServedTiny served;
  EXPECT_EQ(error_code(served.post("/v1/completions", completion("a", 3, {{"model", "other"}}))),
            "model_not_found");
  EXPECT_EQ(served.post("/v1/completions", completion("a", 3, {{"model", "other"}})).status, 404);
  const auto longer = served.post("/v1/completions", completion(std::string(5000, 'a'), 3));
  EXPECT_EQ(longer.status, 400);
  EXPECT_EQ(error_code(longer), "context_length_exceeded");
  EXPECT_EQ(served.post("/v1/completions", completion("a", 3, {{"prompt", {9999}}})).status, 400);
  EXPECT_EQ(served.post("/v1/completions", completion("a", 3, {{"logit_bias", {{"5", 1}}}}))
                .json()["error"]["param"],
            "logit_bias");
  EXPECT_EQ(testing::ask(served.port(), "POST", "/v1/completions", "{\"prompt\": \"\xff\"}").status, 400);
  EXPECT_EQ(testing::ask(served.port(), "POST", "/v1/completions", std::string(100000, '[')).status, 400);
  EXPECT_EQ(testing::ask(served.port(), "POST", "/v1/completions", "", "Content-Length: 99999999\r\n").status,
            413);
  EXPECT_EQ(served.get("/", "X: " + std::string(20000, 'x') + "\r\n").status, 431);
  EXPECT_EQ(served.get("/", "Origin: https://evil.example\r\n").status, 403);
  const auto image = served.post(
      "/v1/chat/completions",
      {{"messages",
        {{{"role", "user"},
          {"content", {{{"type", "image_url"}, {"image_url", {{"url", "file:///etc/passwd"}}}}}}}}}});
  EXPECT_EQ(image.status, 400);
  EXPECT_EQ(image.json()["error"]["param"], "messages[0].content");
  const auto tools = served.post("/v1/chat/completions",
                                 {{"messages", {{{"role", "user"}, {"content", "a"}}}},
                                  {"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}}});
  EXPECT_EQ(tools.status, 400) << "ChatML has no place for tools";
  EXPECT_EQ(served.get("/health").status, 200);
}

TEST(Server, OneConnectionTakesManyRequests) {
  ServedTiny served;
  HttpClient client(served.port());
  const std::string health = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string body = completion("Once", 3).dump();
  const std::string post =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
      "\r\n\r\n" + body;
  client.send(health + post + health + post +
              "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  const std::string& got = client.read_to_end();
  size_t answers = 0, texts = 0;
  for (size_t at = 0; (at = got.find("HTTP/1.1 200", at)) != std::string::npos; ++at) ++answers;
  for (size_t at = 0; (at = got.find("text_completion", at)) != std::string::npos; ++at) ++texts;
  EXPECT_EQ(answers, 5u) << got;
  EXPECT_EQ(texts, 2u);
}

TEST(Server, ClientsOfTheOldVersionGetStreamsWithoutChunks) {
  ServedTiny served;
  const auto old = [](const std::string& first, const std::string& body = "") {
    return first + " HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  };
  HttpClient streams(served.port());
  streams.send(old("POST /v1/completions", completion("Once", 5, {{"stream", true}}).dump()));
  const std::string& got = streams.read_to_end();
  EXPECT_EQ(got.find("Transfer-Encoding"), std::string::npos) << got;
  EXPECT_EQ(got.find("data: {"), got.find("\r\n\r\n") + 4) << got;
  EXPECT_TRUE(got.ends_with("\n\ndata: [DONE]\n\n")) << got;
  HttpClient client(served.port());
  client.send(old("GET /health"));
  EXPECT_NE(client.read_until("\"ok\"").find("Connection: keep-alive\r\n"), std::string::npos);
  client.send(old("GET /v1/models"));
  EXPECT_NE(client.read_until("\"tiny\"").find("\"tiny\""), std::string::npos);
}

TEST(Server, ScoresAreThoseOfEval) {
  ServedTiny served;
  const std::string text = "The cat sat on the mat.";
  const auto scored = served.post("/v1/score", {{"text", text}});
  ASSERT_EQ(scored.status, 200) << scored.body;
  const auto body = scored.json();
  const auto run = ServedTiny::loaded();
  const auto loss = text_loss(*run.model, run.tokenizer->encode(text), {.window = 512});
  EXPECT_NEAR(body["mean_loss"].get<double>(), loss.mean(), 1e-6);
  EXPECT_NEAR(body["bits_per_byte"].get<double>(), loss.bits_per_byte(static_cast<int64_t>(text.size())),
              1e-6);
  ASSERT_EQ(body["tokens"].size(), text.size());
  EXPECT_TRUE(body["tokens"][0]["loss"].is_null());
  EXPECT_EQ(body["tokens"][4]["text"], "c");
  EXPECT_GE(body["tokens"][4]["rank"], 1);
  EXPECT_FALSE(body["tokens"][4].contains("bytes"));
  const auto parts = served.post("/v1/score", {{"text", "a\u00e9"}}).json()["tokens"];
  EXPECT_EQ(parts[1]["bytes"], json{0xc3});
  EXPECT_EQ(parts[2]["bytes"], json{0xa9});
  EXPECT_EQ(served.post("/v1/score", json::object()).status, 400);
  EXPECT_EQ(served.post("/v1/score", {{"text", ""}}).status, 200);
}

TEST(Server, EmbeddingsAreMeansOfStates) {
  ServedTiny served;
  const auto plain = served.post("/v1/embeddings", {{"input", {"cat", "dog"}}});
  ASSERT_EQ(plain.status, 200) << plain.body;
  EXPECT_EQ(plain.json()["data"].size(), 2u);
  EXPECT_EQ(plain.json()["data"][0]["embedding"].size(), 32u);
  EXPECT_NE(plain.json()["data"][0]["embedding"], plain.json()["data"][1]["embedding"]);
  const auto coded = served.post("/v1/embeddings", {{"input", "cat"}, {"encoding_format", "base64"}}).json();
  EXPECT_EQ(coded["data"][0]["embedding"].get<std::string>().size(), (32 * 4 + 2) / 3 * 4);
  EXPECT_EQ(served.post("/v1/embeddings", {{"input", 3}}).json()["error"]["param"], "input");
  EXPECT_EQ(served.post("/translate", {{"text", "a"}}).status, 404);
}

TEST(Server, MetricsCount) {
  ServedTiny served;
  served.post("/v1/completions", completion("Once", 5));
  served.get("/nothing");
  HttpClient nonsense(served.port());
  nonsense.send("nonsense\r\n\r\n");
  nonsense.read_to_end();
  // The load is told behind the last token.
  EXPECT_TRUE(
      served.reaches([](const DecoderLoad& load) { return load.running == 0 && load.made_tokens == 5; }));
  const std::string text = served.get("/metrics").body;
  for (const char* line : {"tightloop_requests_total{endpoint=\"/v1/completions\",code=\"200\"} 1\n",
                           "tightloop_requests_total{endpoint=\"other\",code=\"404\"} 1\n",
                           "tightloop_requests_total{endpoint=\"other\",code=\"400\"} 1\n",
                           "tightloop_made_tokens_total{model=\"tiny\"} 5\n",
                           "tightloop_prompt_tokens_total{model=\"tiny\"} 4\n",
                           "tightloop_time_to_first_token_seconds_count{model=\"tiny\"} 1\n",
                           "tightloop_time_between_tokens_seconds_count{model=\"tiny\"} 4\n",
                           "tightloop_running{model=\"tiny\"} 0\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

}  // namespace
}  // namespace tightloop
