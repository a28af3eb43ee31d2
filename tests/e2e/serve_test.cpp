// `tightloop serve` from outside: programs of others, the examples of its page, signals, load.
#include <csignal>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "e2e/program.h"
#include "serve/http_client.h"

namespace tightloop {
namespace {

using nlohmann::json;
using testing::contains;
using testing::TempFolder;

const fs::path kCheckout = TIGHTLOOP_SOURCE_DIR;

/// Conversations that a tiny model learns by heart in seconds. Names stand in the order in which clients send
/// them.
std::string conversations() {
  using json = nlohmann::ordered_json;
  const json user = {{"role", "user"}},
             tools = json::parse(R"([{"type": "function", "function": {"name": "get_weather",
      "description": "Weather of a city", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}])");
  const auto asks = [](const char* text) { return json{{"role", "user"}, {"content", text}}; };
  const json call = json::parse(
      R"([{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Rome"}}}])");
  std::string lines;
  for (int i = 0; i < 60; ++i) {
    lines += json{{"messages",
                   {asks("Say hello."), {{"role", "assistant"}, {"content", "Hello there, my friend."}}}}}
                 .dump() +
             "\n";
    lines +=
        json{{"messages",
              {asks("Think."),
               {{"role", "assistant"}, {"reasoning_content", "Two and two."}, {"content", "It is four."}}}}}
            .dump() +
        "\n";
    lines +=
        json{{"messages",
              {asks("Weather in Rome?"), {{"role", "assistant"}, {"content", ""}, {"tool_calls", call}}}},
             {"tools", tools}}
            .dump() +
        "\n";
  }
  return lines;
}

/// A server in a process of its own.
class Served {
 public:
  Served(const fs::path& folder, const std::string& options) : folder_(folder) {
    const std::string command = "cd '" + folder.string() +
                                "' && exec '" TIGHTLOOP_BINARY_DIR "/tightloop' serve --device cpu " +
                                options + " > url 2> serve.log";
    fs::remove(folder / "url");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    for (int i = 0; i < 1200 && port_ == 0 && !ended(); ++i) {
      const std::string url = fs::exists(folder / "url") ? read_file(folder / "url") : "";
      if (url.ends_with("\n")) port_ = std::atoi(url.substr(url.rfind(':') + 1).c_str());
      ::usleep(50000);
    }
    EXPECT_GT(port_, 0) << log();
  }
  ~Served() { stop(SIGKILL); }

  int port() const { return port_; }
  pid_t pid() const { return pid_; }
  std::string log() const { return read_file(folder_ / "serve.log"); }
  void signal(int number) const { ::kill(pid_, number); }
  bool ended() {
    if (!ended_ && ::waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
    return ended_;
  }
  /// Its exit code.
  int wait() {
    if (!ended_) ::waitpid(pid_, &status_, 0), ended_ = true;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }
  int stop(int number = SIGTERM) {
    if (!ended()) signal(number);
    return wait();
  }

 private:
  fs::path folder_;
  pid_t pid_ = -1;
  int port_ = 0, status_ = 0;
  bool ended_ = false;
};

class Serve : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    write_file_whole(*folder_ / "talk.jsonl", conversations());
    const auto train = [](const std::string& command) {
      const auto outcome =
          testing::run(folder_->path(), "tightloop train '" TIGHTLOOP_SOURCE_DIR "/configs/" + command);
      ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    };
    train(
        "text.yaml' --model.layers 2 --model.width 64 --model.heads 2 --train.device cpu --train.precision "
        "fp32 "
        "--tokenizer.vocab_size 600 --train.steps 130 --train.micro_batch 6 --train.lr 1e-2 --data.source "
        "jsonl "
        "--data.train talk.jsonl --data.rows pad --data.seq_len 704 --chat.form qwen3 --run.name mine");
    train(
        "translate-toy.yaml' --train.device cpu --train.precision fp32 --model.width 32 --model.layers 1 "
        "--model.ffn 32 "
        "--train.steps 4 --train.save_steps 4 --tasks.questions 600 --tokenizer.vocab_size 120 "
        "--tasks.held_out 20 "
        "--run.name de");
  }
  static void TearDownTestSuite() { delete folder_; }
  static testing::Outcome in(const std::string& command) { return testing::run(folder_->path(), command); }
  static inline TempFolder* folder_ = nullptr;
  static inline const std::string kBoth = "--model mine=runs/mine --model runs/de --port 0 ";
};

json chat(const std::string& question, const json& more = json::object()) {
  json body{{"model", "mine"}, {"temperature", 0}, {"messages", {{{"role", "user"}, {"content", question}}}}};
  body.update(more);
  return body;
}

testing::HttpAnswered post(const Served& served, const std::string& path, const json& body,
                           const std::string& headers = "") {
  return testing::ask(served.port(), "POST", path, body.dump(), headers);
}

TEST_F(Serve, TheRealClientOfOpenAIIsContent) {
  const fs::path python = kCheckout / ".deps/watch/bin/python";
  if (testing::run(folder_->path(), "'" + python.string() + "' -c 'import openai'").exit_code != 0)
    GTEST_SKIP() << "not here: openai in " << python << " (tools/setup --watch)";
  Served served(folder_->path(), kBoth);
  const auto outcome = in("'" + python.string() + "' '" TIGHTLOOP_SOURCE_DIR "/tests/e2e/serve_client.py' " +
                          std::to_string(served.port()));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  // The page's Python, with the port that this server has.
  const std::string page = read_file(kCheckout / "docs/serving.md");
  const size_t begin = page.find("```python\n") + 10, end = page.find("```", begin);
  std::string script = page.substr(begin, end - begin);
  script.replace(script.find("8000"), 4, std::to_string(served.port()));
  write_file_whole(*folder_ / "example.py", script);
  const auto example = in("'" + python.string() + "' example.py");
  EXPECT_EQ(example.exit_code, 0) << example.output;
  EXPECT_TRUE(example.output.starts_with("Hello there, my friend.\n")) << example.output;
  EXPECT_EQ(served.stop(), 0) << served.log();
}

TEST_F(Serve, TheExamplesOfThePageRunAsTheyStand) {
  Served served(folder_->path(), kBoth);
  // curl itself is told that the server is at another port.
  write_file_whole(*folder_ / ".curlrc",
                   "connect-to = \"127.0.0.1:8000:127.0.0.1:" + std::to_string(served.port()) +
                       "\"\nsilent\nshow-error\nfail-with-body\n");
  std::istringstream lines(read_file(kCheckout / "docs/serving.md"));
  std::string command;
  bool inside = false;
  std::vector<std::string> commands;
  for (std::string line; std::getline(lines, line);) {
    if (line == "```sh") {
      inside = true;
    } else if (inside && line == "```") {
      inside = false, command.pop_back();
      commands.push_back(std::exchange(command, {}));
    } else if (inside) {
      command += line + "\n";
    }
  }
  ASSERT_GE(commands.size(), 8u);
  std::string all;
  for (const auto& one : commands) {
    EXPECT_TRUE(one.starts_with("curl ")) << one;
    const auto outcome = in("export CURL_HOME=\"$PWD\"; " + one);
    EXPECT_EQ(outcome.exit_code, 0) << one << outcome.output;
    all += outcome.output + "\n";
  }
  for (const char* part : {"Hello there, my friend.", "\"tool_calls\"", "get_weather", "[DONE]",
                           "\"bits_per_byte\"", "\"translations\"", "text_completion"})
    EXPECT_TRUE(contains(all, part)) << part << "\n" << all;
}

TEST_F(Serve, AnswersAreThoseOfTheOtherVerbs) {
  Served served(folder_->path(), kBoth);
  const auto generated = [&](const std::string& options) {
    const auto outcome =
        in("tightloop generate --run runs/mine --device cpu --prompt 'Hello th' --max-tokens 24 --json " +
           options + " 2>/dev/null");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return json::parse(outcome.output)["results"];
  };
  const json text{{"model", "mine"}, {"prompt", "Hello th"}, {"max_tokens", 24}};
  const auto completed = [&](json more) {
    json body = text;
    body.update(more);
    return post(served, "/v1/completions", body).json()["choices"];
  };
  EXPECT_EQ(completed({{"temperature", 0}})[0]["text"], generated("--temperature 0")[0]["text"]);
  const auto drawn = generated("--temperature 0.9 --top-p 0.9 --seed 7 --n 3");
  const auto made = completed({{"temperature", 0.9}, {"top_p", 0.9}, {"seed", 7}, {"n", 3}});
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(made[i]["text"], drawn[i]["text"]) << i;
  const auto penalized = completed({{"temperature", 0}, {"repetition_penalty", 1.3}, {"stop", "friend"}});
  EXPECT_EQ(penalized[0]["text"],
            generated("--temperature 0 --repetition-penalty 1.3 --stop friend")[0]["text"]);
  const auto said =
      in("echo 'Say hello.' | tightloop chat --run runs/mine --device cpu --temperature 0 2>/dev/null");
  EXPECT_TRUE(said.output.ends_with(post(served, "/v1/chat/completions", chat("Say hello."))
                                        .json()["choices"][0]["message"]["content"]
                                        .get<std::string>() +
                                    "\n"))
      << said.output;
  const auto translated =
      in("echo 'a cat' | tightloop translate --run runs/de --device cpu --beam 3 2>/dev/null");
  EXPECT_EQ(post(served, "/translate", {{"text", "a cat"}, {"beam", 3}})
                    .json()["translations"][0]["text"]
                    .get<std::string>() +
                "\n",
            translated.output);
  std::string endless;
  for (int i = 0; i < 2000; ++i) endless += "a cat ";
  const auto cut = post(served, "/translate", {{"text", {"a cat", endless, "a cat"}}}).json()["translations"];
  ASSERT_EQ(cut.size(), 3u);
  EXPECT_EQ(cut[1].value("cut", false), true) << "only its beginning was read";
  EXPECT_FALSE(cut[0].contains("cut") || cut[2].contains("cut"));
  EXPECT_EQ(post(served, "/translate", {{"text", "a cat\n"}}).status, 200);
  const auto lines = post(served, "/translate", {{"text", {"a cat", "a cat\na dog"}}});
  EXPECT_EQ(lines.status, 400);
  EXPECT_TRUE(contains(lines.body, "give each line as a text of its own")) << lines.body;
}

TEST_F(Serve, WrongUseIsASentence) {
  const std::vector<std::tuple<std::string, int, std::string>> cases{
      {"--model runs/none", 2, "there is no folder 'runs/none'"},
      {"--model runs/mine --model a/../runs/mine", 2, "there is no folder"},
      {"--model runs/mine --model mine=runs/de", 2, "--model NAME="},
      {"--model runs/mine --host 0.0.0.0", 2, "--api-key-file"},
      {"--model runs/mine --api-key-file nowhere", 3, "nowhere"},
      {"--model runs/mine --port 70000", 2, "65535"},
      {"--model runs/mine --cors '*'", 2, "is no origin"},
      {"--model runs/mine --max-tokens 0", 2, "--max-tokens"},
      {"--model runs/mine --api-key secret", 2, "--api-key"},
      {"--model runs/mine --host no.such.host.invalid --port 0", 2, "--api-key-file"}};
  for (const auto& [options, code, part] : cases) {
    const auto outcome = in("tightloop serve --device cpu " + options);
    EXPECT_EQ(outcome.exit_code, code) << options << outcome.output;
    EXPECT_TRUE(contains(outcome.output, part)) << outcome.output;
  }
  Served served(folder_->path(), kBoth);
  const auto used =
      in("tightloop serve --device cpu --model runs/mine --port " + std::to_string(served.port()));
  EXPECT_EQ(used.exit_code, 2);
  EXPECT_TRUE(contains(used.output, "cannot be used")) << used.output;
}

TEST_F(Serve, AKeyComesFromAFileOrTheEnvironmentAndIsNowhereToBeSeen) {
  write_file_whole(*folder_ / "key", "top-secret-7319\n");
  Served served(folder_->path(), kBoth + "--api-key-file key --log --host 0.0.0.0");
  EXPECT_EQ(post(served, "/v1/chat/completions", chat("Say hello.")).status, 401);
  EXPECT_EQ(
      post(served, "/v1/chat/completions", chat("Say hello."), "Authorization: Bearer top-secret-7318\r\n")
          .status,
      401);
  EXPECT_EQ(
      post(served, "/v1/chat/completions", chat("Say hello."), "Authorization: Bearer top-secret-7319\r\n")
          .status,
      200);
  {
    testing::HttpClient client(served.port());
    client.send(testing::http_request("POST", "/v1/completions",
                                      json{{"model", "mine"},
                                           {"prompt", "Hello"},
                                           {"max_tokens", 600},
                                           {"n", 16},
                                           {"ignore_eos", true},
                                           {"stream", true}}
                                          .dump(),
                                      "Authorization: Bearer top-secret-7319\r\n"));
    client.read_until("data: ");
  }
  for (int i = 0; i < 200 && !contains(served.log(), " 499, "); ++i) ::usleep(50000);
  EXPECT_EQ(served.stop(), 0);
  EXPECT_TRUE(std::regex_search(served.log(),
                                std::regex("\n\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d POST /v1/completions "
                                           "499, mine, \\d+ ms, \\d+ \\+ [1-9]\\d* tokens\n")))
      << served.log();
  EXPECT_TRUE(contains(served.log(), "mine: chat form qwen3, context of")) << served.log();
  EXPECT_FALSE(contains(served.log(), "secret"));
  EXPECT_FALSE(contains(served.log(), "Say hello")) << "no text of a request is logged";
  EXPECT_TRUE(contains(served.log(), "POST /v1/chat/completions 200, ")) << served.log();
  EXPECT_TRUE(contains(served.log(), " tokens")) << served.log();
}

TEST_F(Serve, SigtermLetsStreamsEndAndASecondSignalDoesNot) {
  const std::string long_text = json{
      {"model", "mine"},
      {"prompt", "Hello"},
      {"max_tokens", 300},
      {"ignore_eos", true},
      {"stream", true}}.dump();
  {
    Served served(folder_->path(), kBoth);
    testing::HttpClient client(served.port());
    client.send(testing::http_request("POST", "/v1/completions", long_text));
    client.read_until("data: ");
    served.signal(SIGTERM);
    EXPECT_TRUE(contains(client.read_to_end(), "[DONE]"));
    EXPECT_EQ(served.wait(), 0) << served.log();
  }
  {
    Served served(folder_->path(), kBoth + "--drain-seconds 0 --choices 64 --running 1");
    testing::HttpClient client(served.port());
    client.send(testing::http_request(
        "POST", "/v1/completions",
        json{{"model", "mine"}, {"prompt", "a"}, {"ignore_eos", true}, {"stream", true}, {"n", 64}}.dump()));
    client.read_until("data: ");
    EXPECT_EQ(served.stop(SIGINT), 0);
    EXPECT_TRUE(contains(client.read_to_end(), "shutting down"));
    EXPECT_TRUE(contains(served.log(), "cut off")) << served.log();
  }
  Served served(folder_->path(), kBoth + "--choices 64 --running 1");
  testing::HttpClient client(served.port());
  client.send(testing::http_request(
      "POST", "/v1/completions",
      json{{"model", "mine"}, {"prompt", "a"}, {"ignore_eos", true}, {"stream", true}, {"n", 64}}.dump()));
  client.read_until("data: ");
  served.signal(SIGTERM);
  ::usleep(700000);  // one within half a second counts as the same
  EXPECT_FALSE(served.ended());
  EXPECT_EQ(served.stop(SIGTERM), 130);
}

TEST_F(Serve, ManyClientsGetWhatEachWouldGetAlone) {
  Served served(folder_->path(), kBoth);
  const char* seconds = std::getenv("TIGHTLOOP_SERVE_SECONDS");
  const auto outcome =
      in("/usr/bin/python3 '" TIGHTLOOP_SOURCE_DIR "/bench/serve_load.py' http://127.0.0.1:" +
         std::to_string(served.port()) + " --model mine --clients 64 --seconds " + (seconds ? seconds : "5") +
         " --pid " + std::to_string(served.pid()));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output << served.log();
  if (seconds) std::printf("%s", outcome.output.c_str());
  const auto result = json::parse(outcome.output.substr(0, outcome.output.find('\n')), nullptr, false);
  ASSERT_TRUE(result.is_object()) << outcome.output;
  EXPECT_GT(result["whole"], 10);
  EXPECT_GT(result["left"], 0);
  const double middle = result["resident_mib"][1], last = result["resident_mib"][2];
  EXPECT_LT(last, middle * 1.3 + 64) << outcome.output;
  for (int i = 0; i < 200 && !contains(testing::ask(served.port(), "GET", "/metrics").body,
                                       "tightloop_running{model=\"mine\"} 0\n");
       ++i)
    ::usleep(50000);
  EXPECT_TRUE(
      contains(testing::ask(served.port(), "GET", "/metrics").body, "tightloop_running{model=\"mine\"} 0\n"));
  EXPECT_EQ(served.stop(), 0);
}

}  // namespace
}  // namespace tightloop
