#include "data/render/chat_bench.h"

#include <atomic>
#include <chrono>
#include <ctime>
#include <deque>

#include "core/threads.h"
#include "data/render/built_in_templates.h"
#include "data/render/json_messages.h"
#include "tokenizer/jinja/jinja_template.h"

namespace tightloop {

namespace {

/// Calls render(i) for every record, round after round, on some threads.
template <class Render>
ChatSpeed::Way speed_of(size_t records, int threads, double seconds, const Render& render) {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  const std::clock_t cpu = std::clock();
  const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - began).count(); };
  double done = 0;
  do {
    parallel_for(records, threads, 64, [&](size_t begin, size_t end, int) {
      for (size_t i = begin; i < end; ++i) render(i);
    });
    done += static_cast<double>(records);
  } while (passed() < seconds);
  return {done / passed(), 1e6 * static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC / done};
}

/// A record that has been read, with what its views point to.
struct ReadRecord {
  explicit ReadRecord(const std::string& json) : bytes(json) {
    read_messages(parse_json(bytes, parser, rewritten)["messages"].value(), DataConfig(), talk);
  }
  simdjson::padded_string bytes;
  simdjson::dom::parser parser;
  std::string rewritten;
  ReadConversation talk;
};

}  // namespace

ChatSpeed measure_chat(const ChatTemplateFiles& files, const std::vector<std::string>& records, int threads,
                       double seconds) {
  const std::string& jinja = files.choose(false);
  const JinjaTemplate interpreter(jinja, files.source);
  std::atomic<size_t> bytes{0};  // what is rendered must be used
  std::vector<JinjaVariables> variables(records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    files.add_tokens(variables[i]);
    variables[i].add_record(records[i], "a record");
  }
  ChatSpeed speed;
  speed.interpreted = speed_of(records.size(), threads, seconds,
                               [&](size_t i) { bytes += interpreter.render(variables[i]).text.size(); });
  const auto quick = quick_form_of(jinja, files.token("bos_token"), 0);
  if (!quick) return speed;
  std::deque<ReadRecord> talks;
  for (const std::string& record : records) talks.emplace_back(record);
  speed.quick = speed_of(records.size(), threads, seconds, [&](size_t i) {
    ChatText out;
    if (quick->write(talks[i].talk.conversation(0), false, out)) bytes += out.text.size();
  });
  return speed;
}

}  // namespace tightloop
