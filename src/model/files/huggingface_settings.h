#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace tightloop {

constexpr double kSmall = 1e-30, kLarge = 1e15;  // numbers above 0, as far as any model has them

/// A config.json, asked key by key; what nobody asked for is known at the end. Errors name the file.
class HuggingFaceSettings {
 public:
  using Json = nlohmann::json;
  HuggingFaceSettings(const Json& json, const std::string& file);

  bool has(const std::string& key);
  int64_t size(const std::string& key, int64_t fallback = 0);
  double number(const std::string& key, double fallback, double low, double high);
  /// A token's id, or several; nothing where there is none.
  void ids(const std::string& key, int64_t vocab_size);
  bool flag(const std::string& key, bool fallback);
  std::string text(const std::string& key, const std::string& fallback);
  /// A setting that must stand at one of these values where it is given at all.
  void only(const std::string& key, const std::vector<Json>& allowed);
  const Json& get(const std::string& key);
  HuggingFaceSettings part(const std::string& key);
  void warn_of_the_rest() const;
  const std::string& file() const { return file_; }

 private:
  const Json& json_;
  std::string file_;
  std::set<std::string> asked_;
};

}  // namespace tightloop
