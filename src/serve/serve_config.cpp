#include "serve/serve_config.h"

namespace tightloop::serve {

void ServeConfig::describe(Fields& fields) {
  constexpr double kManySeconds = 1e6, kMany = 1e9;
  fields.add("host", host, "Address to listen at; any but this machine's own asks for an API key");
  fields.add("port", port, "Port to listen at; 0: one that is free").range(0, 65535);
  fields.add(
      "api_key_file", api_key_file,
      "A file with the key that requests must bring (or $TIGHTLOOP_API_KEY); empty: none is asked for");
  fields.add("cors", cors, "An origin whose pages may ask, such as https://chat.example; empty: none");
  fields.add("log", log, "Log a line for each request (no text of it)");
  fields.add("body_kib", body_kib, "Largest body of a request, in KiB").range(1, 1 << 20);
  fields.add("head_kib", head_kib, "Largest request line and headers, in KiB").range(1, 1024);
  fields.add("prompt_tokens", prompt_tokens, "Longest prompt; 0: what fits into the model's context")
      .range(0, kMany);
  fields.add("max_tokens", max_tokens, "Longest answer that may be asked for, in tokens").range(1, kMany);
  fields.add("choices", choices, "Most answers of one request (n, times its prompts)").range(1, 1024);
  fields.add("lines", lines, "Most lines of one request for translations").range(1, 100000);
  fields.add("beam", beam, "Largest beam of one request for translations").range(1, 1000);
  fields.add("queue", queue, "Answers that may wait beside those that are decoded; more get status 429")
      .range(0, 1e6);
  fields.add("connections", connections, "Connections that may be open at once").range(1, 65536);
  fields
      .add("stream_kib", stream_kib,
           "What a stream's client may be behind, in KiB; further, its answer is cancelled")
      .range(1, 1 << 20);
  fields.add("request_seconds", request_seconds, "Longest time of a request").range(0.1, kManySeconds);
  fields.add("receive_seconds", receive_seconds, "Time in which a request must have arrived")
      .range(0.1, kManySeconds);
  fields.add("send_seconds", send_seconds, "Time in which a client must take something of its answer")
      .range(0.1, kManySeconds);
  fields.add("idle_seconds", idle_seconds, "How long a connection stays open between requests")
      .range(0.1, kManySeconds);
  fields.add("drain_seconds", drain_seconds, "After SIGTERM or Ctrl-C: time for running requests to end")
      .range(0, kManySeconds);
  fields.add("running", running, "Answers of a model that are decoded at once").range(1, 1 << 16);
  fields.add("cache_tokens", cache_tokens, "Tokens of a model whose keys and values are kept")
      .range(16, kMany);
  fields.add("prefill_tokens", prefill_tokens, "Tokens of prompts that one pass of a model reads")
      .range(1, 1 << 20);
  fields.add("no_shared_prefixes", no_shared_prefixes,
             "Read each prompt from its beginning, also where that was read before");
}

}  // namespace tightloop::serve
