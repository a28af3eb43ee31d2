#include "serve/api/fields.h"

#include <algorithm>

#include "core/config.h"
#include "core/io/json_depth.h"
#include "core/log.h"
#include "dist/fault.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop::serve {

HttpReply reply_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const ApiError& error) {
    return error.reply();
  } catch (const std::exception& error) {
    const std::string why = last_words(error).what();
    log::error("A request failed: {}", why);
    return ApiError{.status = 500, .message = why, .type = "server_error"}.reply();
  }
}

OrderedJson parse_ordered(std::string_view text) {
  constexpr size_t kMostNames = 1000;  // of an object
  struct TooMany {};
  std::vector<size_t> names;  // of the objects that are open
  const auto count = [&](int, OrderedJson::parse_event_t event, OrderedJson&) {
    if (event == OrderedJson::parse_event_t::object_start) names.push_back(0);
    if (event == OrderedJson::parse_event_t::object_end) names.pop_back();
    if (event == OrderedJson::parse_event_t::key && ++names.back() > kMostNames) throw TooMany{};
    return true;
  };
  try {
    return OrderedJson::parse(shallow_json(text), count, /*allow_exceptions=*/false);
  } catch (const TooMany&) {
    return OrderedJson::value_t::discarded;
  }
}

namespace {

std::string why_not_read(std::string_view body) {
  if (body.empty()) return "the body is empty: it must be an object of JSON.";
  const std::string_view shallow = shallow_json(body);
  if (shallow.empty()) return "the body is JSON that is nested too deeply.";
  try {
    [[maybe_unused]] const auto read = nlohmann::json::parse(shallow);
    return "an object of the body has too many names.";
  } catch (const nlohmann::json::parse_error& error) {
    if (error.byte > body.size())
      return fmt::format("the body is not JSON: it ends too early, behind byte {}.", body.size());
    return fmt::format("the body is not JSON: it is wrong at byte {} of {}.", error.byte, body.size());
  } catch (const nlohmann::json::exception&) {
    return "the body holds a number that is too large.";
  }
}

}  // namespace

OrderedJson read_json_body(std::string_view body) {
  if (!is_utf8(body)) throw ApiError{.message = "the body is not UTF-8."};
  auto json = parse_ordered(body);
  if (json.is_discarded()) throw ApiError{.message = why_not_read(body)};
  if (!json.is_object()) throw ApiError{.message = "the body is JSON, but not an object."};
  return json;
}

const OrderedJson* FieldReader::find(const std::string& name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::string> FieldReader::text(const std::string& name) {
  const auto* value = find(name);
  if (!value) return {};
  if (!value->is_string()) throw wrong_field(name, "'{}' must be a string.", name);
  return value->get<std::string>();
}

std::string FieldReader::required_text(const std::string& name) {
  auto value = text(name);
  if (!value)
    throw ApiError{.message = fmt::format("'{}' is missing.", name),
                   .param = name,
                   .code = "missing_required_parameter"};
  return *std::move(value);
}

bool FieldReader::truth(const std::string& name, bool otherwise) {
  const auto* value = find(name);
  if (!value) return otherwise;
  if (!value->is_boolean()) throw wrong_field(name, "'{}' must be true or false.", name);
  return value->get<bool>();
}

std::optional<int64_t> FieldReader::integer(const std::string& name, int64_t low, int64_t high) {
  const auto* value = find(name);
  if (!value) return {};
  const auto wrong = [&] {
    return wrong_field(name, "'{}' must be an integer from {} to {}.", name, low, high);
  };
  if (!value->is_number_integer()) throw wrong();
  if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) throw wrong();
  const auto number = value->get<int64_t>();
  if (number < low || number > high) throw wrong();
  return number;
}

double FieldReader::number(const std::string& name, double otherwise, double low, double high) {
  const auto* value = find(name);
  if (!value) return otherwise;
  const double number = value->is_number() ? value->get<double>() : low - 1;
  if (!(number >= low && number <= high))
    throw wrong_field(name, "'{}' must be a number from {} to {}.", name, low, high);
  return number;
}

std::vector<std::string> FieldReader::texts(const std::string& name, size_t most) {
  const auto* value = find(name);
  if (!value) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) throw wrong_field(name, "'{}' must be a string or a list of strings.", name);
  if (value->size() > most)
    throw wrong_field(name, "'{}' has {} entries; at most {} are taken.", name, value->size(), most);
  std::vector<std::string> found;
  for (const auto& one : *value) {
    if (!one.is_string()) throw wrong_field(name, "'{}' must be a string or a list of strings.", name);
    found.push_back(one.get<std::string>());
  }
  return found;
}

void FieldReader::ignore(std::initializer_list<const char*> names) {
  for (const char* name : names) known_.insert(name);
}

void FieldReader::refuse(const std::string& name, std::initializer_list<OrderedJson> harmless,
                         std::string_view why) {
  const auto* value = find(name);
  if (!value || std::ranges::find(harmless, *value) != harmless.end()) return;
  throw ApiError{.message = fmt::format("'{}' is not supported: {}", name, why),
                 .param = name,
                 .code = "unsupported_parameter"};
}

void FieldReader::refuse_unknown() const {
  constexpr size_t kShown = 64;  // a name may be as long as the body, and is compared letter by letter
  for (const auto& [whole, value] : object_.items()) {
    if (known_.contains(whole) || value.is_null()) continue;
    const std::string name = whole.substr(0, kShown);
    const auto meant = nearest(name, {known_.begin(), known_.end()});
    throw ApiError{.message = fmt::format("there is no field '{}' here{}", name,
                                          meant ? fmt::format("; did you mean '{}'?", *meant) : "."),
                   .param = name,
                   .code = "unknown_parameter"};
  }
}

}  // namespace tightloop::serve
