#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "core/io/gguf.h"

namespace tightloop {

/// The metadata of an architecture in a GGUF file, asked key by key without "ARCHITECTURE."; what nobody
/// asked for is known at the end. Errors name the file and the key.
class GgufSettings {
 public:
  GgufSettings(const GgufFile& file, std::string architecture);

  const GgufFile& file() const { return file_; }
  std::string path() const { return file_.path().string(); }
  bool has(const std::string& key) { return find(key) != nullptr; }
  /// A whole number from 1; `fallback` 0: it must be there.
  int64_t size(const std::string& key, int64_t fallback = 0);
  double number(const std::string& key, double fallback, double low, double high);
  std::string text(const std::string& key, const std::string& fallback);
  /// Refuses a setting that stands at another value than this, where it is given.
  void only(const std::string& key, double value);
  /// Says which settings of the architecture nobody asked for.
  void warn_of_the_rest() const;

 private:
  const GgufValue* find(const std::string& key);
  std::string full(const std::string& key) const { return architecture_ + "." + key; }

  const GgufFile& file_;
  std::string architecture_;
  std::set<std::string> asked_;
};

}  // namespace tightloop
