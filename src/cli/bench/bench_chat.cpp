#include <fmt/format.h>

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/at_least.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/files.h"
#include "data/read/line_reader.h"
#include "data/render/chat_bench.h"

namespace tightloop::cli {

namespace {

struct BenchChatArguments {
  std::string path, input;
  int threads = 1;
  double seconds = 2;
  bool json = false;
};

void bench_chat(const BenchChatArguments& options) {
  if (!path_exists(options.path)) throw usage_error("--template: there is no '{}'.", options.path);
  std::vector<std::string> records;
  LineReader lines(options.input, uint64_t{1} << 26);
  while (lines.next() == LineReader::Status::kLine) records.emplace_back(lines.line());
  if (records.empty()) throw data_error("'{}' holds no conversation.", options.input);
  const ChatSpeed speed =
      measure_chat(read_chat_template(options.path), records, options.threads, options.seconds);
  const auto as_json = [](const ChatSpeed::Way& way) {
    return nlohmann::json{{"conversations_s", way.a_second}, {"cpu_us", way.cpu_microseconds}};
  };
  const auto as_text = [](const ChatSpeed::Way& way, const char* by) {
    return fmt::format("{:.0f} conversations/s by {} ({:.2f} us of CPU time each)\n", way.a_second, by,
                       way.cpu_microseconds);
  };
  const bool quick = speed.quick.a_second > 0;
  nlohmann::json json{{"interpreter", as_json(speed.interpreted)},
                      {"threads", options.threads},
                      {"conversations", records.size()}};
  if (quick) json["built_in"] = as_json(speed.quick);
  put(options.json ? json.dump() + "\n"
                   : as_text(speed.interpreted, "the interpreter") +
                         (quick ? as_text(speed.quick, "the built-in form") : ""));
}

}  // namespace

void add_bench_chat(CLI::App& bench) {
  auto options = std::make_shared<BenchChatArguments>();
  auto* verb = bench.add_subcommand("chat", "Time a chat template on conversations that have been read");
  verb->add_option("--template", options->path,
                   "A Hugging Face folder, its tokenizer_config.json, or a chat template")
      ->required();
  verb->add_option("--input", options->input, "JSON lines with 'messages'")->required();
  verb->add_option("--threads", options->threads, "Threads")->check(at_least(1));
  verb->add_option("--seconds", options->seconds, "How long, each way")->check(at_least(0.01));
  verb->add_flag("--json", options->json, "For programs");
  verb->footer("Example: tightloop bench chat --template models/qwen --input chats.jsonl --threads 2");
  verb->callback([=] { bench_chat(*options); });
}

}  // namespace tightloop::cli
