#pragma once

#include <cstdint>
#include <string>

#include "core/config.h"

namespace tightloop::serve {

/// The settings of `tightloop serve`, which are its options, with - in the place of _.
struct ServeConfig {
  std::string host = "127.0.0.1";
  int64_t port = 8000;
  std::string api_key_file{}, cors{};
  bool log = false;
  // What one request may be.
  int64_t body_kib = 4096, head_kib = 16, prompt_tokens = 0, max_tokens = 4096, choices = 16;
  int64_t lines = 256, beam = 16;  // of translations
  // What all together may be.
  int64_t queue = 256, connections = 512, stream_kib = 1024;
  // How long things may take.
  double request_seconds = 600, receive_seconds = 30, send_seconds = 30, idle_seconds = 60,
         drain_seconds = 30;
  // The decoder's.
  int64_t running = 64, cache_tokens = 32768, prefill_tokens = 512;
  bool no_shared_prefixes = false;

  void describe(Fields& fields);
};

}  // namespace tightloop::serve
