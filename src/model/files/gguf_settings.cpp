#include "model/files/gguf_settings.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/log.h"

namespace tightloop {

GgufSettings::GgufSettings(const GgufFile& file, std::string architecture)
    : file_(file), architecture_(std::move(architecture)) {}

const GgufValue* GgufSettings::find(const std::string& key) {
  asked_.insert(full(key));
  return file_.metadata().find(full(key));
}

int64_t GgufSettings::size(const std::string& key, int64_t fallback) {
  const GgufValue* value = find(key);
  if (!value && fallback > 0) return fallback;
  if (!value) throw checkpoint_error("'{}' does not say {}.", path(), full(key));
  const auto size = value->list ? std::nullopt : value->integer();
  if (!size || *size < 1 || *size > (1 << 24))
    throw checkpoint_error("'{}': {} is {}; a whole number from 1 to 16777216 was expected.", path(),
                           full(key),
                           value->list ? "a list"
                           : size      ? std::to_string(*size)
                                       : "none");
  return *size;
}

double GgufSettings::number(const std::string& key, double fallback, double low, double high) {
  const GgufValue* value = find(key);
  if (!value) return fallback;
  const double number = value->list ? std::nan("") : value->number().value_or(std::nan(""));
  if (!(number >= low && number <= high))
    throw checkpoint_error("'{}': {} is {}; a number from {} to {} was expected.", path(), full(key), number,
                           low, high);
  return number;
}

std::string GgufSettings::text(const std::string& key, const std::string& fallback) {
  const GgufValue* value = find(key);
  if (!value) return fallback;
  if (!value->text()) throw checkpoint_error("'{}': {} is not a text.", path(), full(key));
  return *value->text();
}

void GgufSettings::only(const std::string& key, double value) {
  const GgufValue* found = find(key);
  if (!found) return;
  auto number = found->list ? std::nullopt : found->number();
  if (const auto flag = found->flag()) number = *flag ? 1 : 0;
  if (number != value)
    throw checkpoint_error("'{}': {} is {}, and only {} is supported.", path(), full(key),
                           number ? fmt::format("{}", *number) : "no number", value);
}

void GgufSettings::warn_of_the_rest() const {
  std::vector<std::string> rest;
  for (const auto& [key, value] : file_.metadata().entries())
    if (key.starts_with(architecture_ + ".") && !asked_.contains(key)) rest.push_back(key);
  if (!rest.empty()) log::warn("'{}': not known and left aside: {}.", path(), fmt::join(rest, ", "));
}

}  // namespace tightloop
