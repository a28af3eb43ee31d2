#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/threads.h"
#include "infer/translate.h"

namespace tightloop::serve {

/// What the search found for a line, the best first.
struct TranslatedLine {
  std::vector<TextTranslation> found{};
  bool cut = false;  // it is longer than what the model reads: only its beginning is translated
};

/// Lines to translate, and who is told. `wanted` and `done` are called on the translator's thread.
struct TranslationJob {
  std::vector<std::string> lines;
  DecodeConfig decode{};
  std::function<bool()> wanted{};  // whether anybody still waits
  std::function<void(std::vector<TranslatedLine>, std::exception_ptr)> done{};
};

/// A model that translates, with the thread on which it computes: one request after another.
class ServedTranslator {
 public:
  ServedTranslator(std::string name, LoadedTranslator loaded);
  ~ServedTranslator();
  ServedTranslator(const ServedTranslator&) = delete;
  ServedTranslator& operator=(const ServedTranslator&) = delete;

  const std::string& name() const { return name_; }
  int64_t created() const { return created_; }
  int64_t context() const { return loaded_.recipe.model.context; }
  void submit(TranslationJob job);

 private:
  void run();

  const std::string name_;
  const int64_t created_;
  LoadedTranslator loaded_;
  BoundedQueue<TranslationJob> jobs_;
  std::jthread thread_;
};

}  // namespace tightloop::serve
