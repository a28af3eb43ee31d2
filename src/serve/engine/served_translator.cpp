#include "serve/engine/served_translator.h"

#include <algorithm>
#include <ctime>
#include <limits>

#include "core/interrupt.h"
#include "train/engine/precision.h"

namespace tightloop::serve {

namespace {

constexpr size_t kLinesAtOnce = 16;  // after so many it is asked whether anybody still waits

}  // namespace

ServedTranslator::ServedTranslator(std::string name, LoadedTranslator loaded)
    : name_(std::move(name)),
      created_(static_cast<int64_t>(std::time(nullptr))),
      loaded_(std::move(loaded)),
      jobs_(std::numeric_limits<size_t>::max()),  // the server counts who waits
      thread_([this] { run(); }) {}

ServedTranslator::~ServedTranslator() {
  jobs_.close();
  thread_.join();
}

void ServedTranslator::submit(TranslationJob job) { jobs_.push(std::move(job)); }

void ServedTranslator::run() {
  const InterruptsHeld until_drained;
  use_threads(loaded_.recipe.train.threads);  // of this thread
  while (auto job = jobs_.pop()) {
    std::vector<TranslatedLine> lines;
    std::exception_ptr failure;
    try {
      TranslateOptions options{.decode = job->decode};
      for (size_t first = 0; first < job->lines.size() && job->wanted(); first += kLinesAtOnce) {
        const auto some = std::span<const std::string>(job->lines)
                              .subspan(first, std::min(kLinesAtOnce, job->lines.size() - first));
        lines.resize(first + some.size());
        options.first_line = first;
        options.on_cut = [&](size_t line, size_t) { lines[first + line].cut = true; };
        auto found = translate(*loaded_.model, loaded_.tokenizers, some, options);
        for (size_t i = 0; i < found.size(); ++i) lines[first + i].found = std::move(found[i]);
      }
    } catch (...) {
      failure = std::current_exception();
    }
    job->done(std::move(lines), failure);
  }
}

}  // namespace tightloop::serve
