#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/http_call.h"

namespace tightloop::serve {

/// Why a request is not answered, for its client.
struct ApiError {
  int status = 400;
  std::string message{}, param{}, code{};
  std::string type = "invalid_request_error";

  HttpReply reply() const { return error_reply(status, message, type, param, code); }
};

/// What a request is answered with that ended so: an ApiError as it says, anything else by status 500.
HttpReply reply_of(const std::exception_ptr& failure);

template <class... Args>
ApiError wrong_field(std::string_view param, fmt::format_string<Args...> format, Args&&... args) {
  return {.message = fmt::format(format, std::forward<Args>(args)...),
          .param = std::string(param),
          .code = "invalid_value"};
}

/// JSON of requests and of answers' calls, which keeps the order of names: templates write it down, and a
/// model knows tools as they stood in its training.
using OrderedJson = nlohmann::ordered_json;
/// Discarded where it is no JSON, nested too deeply, or an object has thousands of names, each of which would
/// be compared with all others.
OrderedJson parse_ordered(std::string_view text);

/// The body of a request: an object of JSON. Throws ApiError.
OrderedJson read_json_body(std::string_view body);

/// The fields of a request. Each is asked for by its name, once; null counts as absent. Throws ApiError.
class FieldReader {
 public:
  explicit FieldReader(const OrderedJson& object) : object_(object) {}

  /// Null where it is absent.
  const OrderedJson* find(const std::string& name);
  std::optional<std::string> text(const std::string& name);
  std::string required_text(const std::string& name);
  bool truth(const std::string& name, bool otherwise);
  std::optional<int64_t> integer(const std::string& name, int64_t low, int64_t high);
  double number(const std::string& name, double otherwise, double low, double high);
  /// A string, or a list of at most `most` of them.
  std::vector<std::string> texts(const std::string& name, size_t most);

  /// Fields that clients send and that change nothing here.
  void ignore(std::initializer_list<const char*> names);
  /// Refused, unless absent or one of the values that change nothing.
  void refuse(const std::string& name, std::initializer_list<OrderedJson> harmless, std::string_view why);
  /// Refuses what nobody has asked for: it may be meant to change the answer.
  void refuse_unknown() const;

 private:
  const OrderedJson& object_;
  std::set<std::string> known_;
};

}  // namespace tightloop::serve
