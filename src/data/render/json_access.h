#pragma once

// For the files that render JSON records; it includes simdjson, which takes long to compile.
#include <simdjson.h>

#include <string>
#include <string_view>

#include "core/error.h"
#include "data/read/json_numbers.h"
#include "data/render/render.h"

namespace tightloop {

/// Parses a record; the result is valid until the parser is used again. What is wrong becomes a BadRecord.
inline simdjson::dom::element parse_json(std::string_view bytes, simdjson::dom::parser& parser,
                                         std::string& rewritten) {
  simdjson::dom::element root;
  auto error = parser.parse(bytes.data(), bytes.size(), false).get(root);
  if (error == simdjson::NUMBER_ERROR && without_large_numbers(bytes, rewritten)) {
    error = parser.parse(rewritten).get(root);
  }
  if (error == simdjson::SUCCESS) return root;
  if (error == simdjson::MEMALLOC)
    throw device_error("out of memory for a record of {} bytes.", bytes.size());
  if (!simdjson::validate_utf8(bytes.data(), bytes.size())) demand_text(bytes);
  if (error == simdjson::EMPTY) throw BadRecord{BadKind::kEmpty, "nothing in it"};
  if (bytes.find('\0') != bytes.npos)
    throw BadRecord{BadKind::kMalformedJson, "a NUL byte in it: is this JSON, or UTF-16?"};
  throw BadRecord{BadKind::kMalformedJson, simdjson::error_message(error)};
}

inline std::string_view text_of(simdjson::dom::element value, std::string_view field) {
  std::string_view text;
  if (value.get(text) == simdjson::SUCCESS) return text;
  throw BadRecord{BadKind::kWrongType, fmt::format("'{}' is not a string", field)};
}

inline bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n\f\v") == text.npos; }

inline simdjson::dom::array list_of(simdjson::dom::element value, std::string_view field) {
  simdjson::dom::array list;
  if (value.get(list) == simdjson::SUCCESS) return list;
  throw BadRecord{BadKind::kWrongType, fmt::format("'{}' is not a list", field)};
}

inline simdjson::dom::element field_of(simdjson::dom::object object, std::string_view field) {
  simdjson::dom::element value;
  if (object.at_key(field).get(value) == simdjson::SUCCESS) return value;
  throw BadRecord{BadKind::kMissingField, fmt::format("no field '{}'", field)};
}

inline bool has_field(simdjson::dom::object object, std::string_view field) {
  return object.at_key(field).error() == simdjson::SUCCESS;
}

/// The same as read_choice() of the record's bytes.
ChoiceQuestion read_choice(simdjson::dom::object record, const DataConfig& config);

}  // namespace tightloop
