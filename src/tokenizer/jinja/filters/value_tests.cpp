#include <unordered_map>

#include "tokenizer/jinja/filters/filters.h"
#include "tokenizer/jinja/values/operators.h"
#include "tokenizer/jinja/values/python_repr.h"
#include "tokenizer/unicode/python_text.h"

namespace tightloop::jinja {

namespace {

template <auto kHolds>
bool plain_test(Run&, const Value& input, CallArguments& arguments) {
  bind("the test", arguments, {});
  return kHolds(input);
}

template <char kFirst, char kSecond = '\0'>
bool compare_test(Run& run, const Value& input, CallArguments& arguments) {
  const auto given = bind("the test", arguments, {"other"}, 1);
  constexpr char kSign[] = {kFirst, kSecond, '\0'};
  return compare(run, kSign, input, given[0]);
}

bool rest_is(Run& run, const Value& value, const Value& by, int64_t rest) {
  return equal(binary(run, "%", value, by), Value(rest));
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kNone:
    case ValueKind::kBoolean:
    case ValueKind::kInteger:
    case ValueKind::kFloat:
    case ValueKind::kNamespace:
    case ValueKind::kCallable:
      return false;
    default:
      return true;
  }
}

bool is_sequence(const Value& value) {
  // An undefined value has a length, and every attribute but those with underscores, as Python asks for here.
  return value.is_text() || value.is_list_or_tuple() || value.is(ValueKind::kDict) ||
         value.is(ValueKind::kRange) || value.is_undefined();
}

bool test_same(Run&, const Value& input, CallArguments& arguments) {
  const auto given = bind("sameas", arguments, {"other"}, 1);
  if (input.kind() != given[0].kind()) return false;
  if (input.is_number()) return equal(input, given[0]);
  if (input.is_text()) return input.body() == given[0].body() || input.bytes() == given[0].bytes();
  return input.body() == given[0].body();
}

bool test_callable(const Value& value) {
  // Python's Undefined has a __call__, which raises.
  return value.is(ValueKind::kCallable) || value.is(ValueKind::kLoop) || value.is_undefined();
}

}  // namespace

TestFunction find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, TestFunction> kTests{
      {"defined", plain_test<[](const Value& v) { return !v.is_undefined(); }>},
      {"undefined", plain_test<[](const Value& v) { return v.is_undefined(); }>},
      {"none", plain_test<[](const Value& v) { return v.is_none(); }>},
      {"boolean", plain_test<[](const Value& v) { return v.is(ValueKind::kBoolean); }>},
      {"true", plain_test<[](const Value& v) { return v.is(ValueKind::kBoolean) && v.integer(); }>},
      {"false", plain_test<[](const Value& v) { return v.is(ValueKind::kBoolean) && !v.integer(); }>},
      {"integer", plain_test<[](const Value& v) { return v.is(ValueKind::kInteger); }>},
      {"float", plain_test<[](const Value& v) { return v.is(ValueKind::kFloat); }>},
      {"number", plain_test<[](const Value& v) { return v.is_number(); }>},
      {"string", plain_test<[](const Value& v) { return v.is_text(); }>},
      {"mapping", plain_test<[](const Value& v) { return v.is(ValueKind::kDict); }>},
      {"sequence", plain_test<is_sequence>},
      {"iterable", plain_test<is_iterable>},
      {"callable", plain_test<test_callable>},
      {"escaped", plain_test<[](const Value& v) { return v.is_text() && v.as_text().markup; }>},
      {"sameas", test_same},
      {"odd",
       [](Run& run, const Value& input, CallArguments& arguments) {
         bind("odd", arguments, {});
         return rest_is(run, input, Value(int64_t{2}), 1);
       }},
      {"even",
       [](Run& run, const Value& input, CallArguments& arguments) {
         bind("even", arguments, {});
         return rest_is(run, input, Value(int64_t{2}), 0);
       }},
      {"divisibleby",
       [](Run& run, const Value& input, CallArguments& arguments) {
         return rest_is(run, input, bind("divisibleby", arguments, {"num"}, 1)[0], 0);
       }},
      {"upper",
       [](Run& run, const Value& input, CallArguments& arguments) {
         bind("upper", arguments, {});
         return python_text::is_upper(str_of(run, input));
       }},
      {"lower",
       [](Run& run, const Value& input, CallArguments& arguments) {
         bind("lower", arguments, {});
         return python_text::is_lower(str_of(run, input));
       }},
      {"in",
       [](Run& run, const Value& input, CallArguments& arguments) {
         return contains(run, bind("in", arguments, {"seq"}, 1)[0], input);
       }},
      {"filter",
       [](Run&, const Value& input, CallArguments& arguments) {
         bind("filter", arguments, {});
         hash_of(input);  // a fault for what cannot be a name
         return input.is_text() && find_filter(input.bytes()) != nullptr;
       }},
      {"test",
       [](Run&, const Value& input, CallArguments& arguments) {
         bind("test", arguments, {});
         hash_of(input);
         return input.is_text() && find_test(input.bytes()) != nullptr;
       }},
      {"==", compare_test<'=', '='>},
      {"eq", compare_test<'=', '='>},
      {"equalto", compare_test<'=', '='>},
      {"!=", compare_test<'!', '='>},
      {"ne", compare_test<'!', '='>},
      {">", compare_test<'>'>},
      {"gt", compare_test<'>'>},
      {"greaterthan", compare_test<'>'>},
      {">=", compare_test<'>', '='>},
      {"ge", compare_test<'>', '='>},
      {"<", compare_test<'<'>},
      {"lt", compare_test<'<'>},
      {"lessthan", compare_test<'<'>},
      {"<=", compare_test<'<', '='>},
      {"le", compare_test<'<', '='>},
  };
  const auto found = kTests.find(name);
  return found == kTests.end() ? nullptr : found->second;
}

}  // namespace tightloop::jinja
