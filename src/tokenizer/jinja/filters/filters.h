#pragma once

#include <span>
#include <string_view>

#include "tokenizer/jinja/values/run.h"

namespace tightloop::jinja {

using FilterFunction = Value (*)(Run&, const Value& input, CallArguments& arguments);
using TestFunction = bool (*)(Run&, const Value& input, CallArguments& arguments);

struct NamedFilter {
  std::string_view name;
  FilterFunction apply;
};
struct NamedTest {
  std::string_view name;
  TestFunction apply;
};

/// jinja2's filters and tests by name; null where there is none.
FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);

std::span<const NamedFilter> text_filters();
std::span<const NamedFilter> number_filters();
std::span<const NamedFilter> list_filters();
std::span<const NamedFilter> select_filters();
std::span<const NamedFilter> markup_filters();

/// What jinja2 makes of attribute="a.b.0": the parts are looked up one after the other.
class AttributePath {
 public:
  AttributePath() = default;
  explicit AttributePath(const Value& attribute);
  /// `otherwise` in place of what is not there, where it is given.
  Value of(Run& run, Value item, const Value& otherwise = {}) const;

 private:
  std::vector<Value> parts_;
};

/// All that a filter was given, for Run::iterator() to count.
Value all_given(Run& run, const Value& input, const CallArguments& arguments);

/// In lower case where it is a text.
Value ignoring_case(Run& run, const Value& value);

}  // namespace tightloop::jinja
