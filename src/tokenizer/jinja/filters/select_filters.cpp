#include <unordered_map>

#include "tokenizer/jinja/filters/filters.h"
#include "tokenizer/jinja/values/python_repr.h"

namespace tightloop::jinja {

namespace {

CallArguments after(const CallArguments& arguments, size_t count) {
  CallArguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                         arguments.positional.end());
  rest.keywords = arguments.keywords;
  return rest;
}

/// What map() does to an item: a filter by name, or an attribute. Found when the first item is asked for.
std::function<Value(const Value&)> mapping_of(Run& run, const CallArguments& arguments) {
  if (arguments.positional.empty()) {
    Value attribute, otherwise;
    for (const auto& [name, value] : arguments.keywords) {
      if (name == "attribute")
        attribute = value;
      else if (name == "default")
        otherwise = value;
      else
        fail("Unexpected keyword argument '{}'", name);
    }
    if (attribute.is(ValueKind::kMissing)) fail("map requires a filter argument");
    return [&run, path = AttributePath(attribute), otherwise](const Value& item) {
      return path.of(run, item, otherwise);
    };
  }
  const std::string name = str_of(run, arguments.positional[0]);
  const FilterFunction filter = find_filter(name);
  if (!filter) fail("there is no filter named '{}'", name);
  return [&run, filter, rest = after(arguments, 1)](const Value& item) {
    CallArguments given = rest;
    run.step_over(item);
    return filter(run, item, given);
  };
}

Value filter_map(Run& run, const Value& input, CallArguments& arguments) {
  struct State {
    std::function<Value(const Value&)> change{};
    std::function<bool(Value&)> next{};
  };
  return run.iterator(
      [&run, input, arguments, state = std::make_shared<State>()](Value& item) {
        const Run::Depth depth(run);
        if (!state->next) {
          if (!truth(input)) return false;
          state->change = mapping_of(run, arguments);
          state->next = run.iterate(input);
        }
        if (!state->next(item)) return false;
        item = state->change(item);
        return true;
      },
      all_given(run, input, arguments));
}

std::function<bool(const Value&)> condition_of(Run& run, const CallArguments& arguments, bool by_attribute) {
  if (by_attribute && arguments.positional.empty()) fail("Missing parameter for attribute name");
  const AttributePath path = by_attribute ? AttributePath(arguments.positional[0]) : AttributePath();
  const size_t skipped = by_attribute ? 1 : 0;
  if (arguments.positional.size() == skipped)
    return [&run, path](const Value& item) { return truth(path.of(run, item)); };
  const std::string name = str_of(run, arguments.positional[skipped]);
  const TestFunction test = find_test(name);
  if (!test) fail("there is no test named '{}'", name);
  return [&run, path, test, rest = after(arguments, skipped + 1)](const Value& item) {
    CallArguments given = rest;
    const Value tested = path.of(run, item);
    run.step_over(tested);
    return test(run, tested, given);
  };
}

template <bool kKeeps, bool kByAttribute>
Value filter_select(Run& run, const Value& input, CallArguments& arguments) {
  struct State {
    std::function<bool(const Value&)> holds{};
    std::function<bool(Value&)> next{};
  };
  return run.iterator(
      [&run, input, arguments, state = std::make_shared<State>()](Value& item) {
        const Run::Depth depth(run);
        if (!state->next) {
          if (!truth(input)) return false;
          state->holds = condition_of(run, arguments, kByAttribute);
          state->next = run.iterate(input);
        }
        while (state->next(item))
          if (state->holds(item) == kKeeps) return true;
        return false;
      },
      all_given(run, input, arguments));
}

}  // namespace

std::span<const NamedFilter> select_filters() {
  static constexpr NamedFilter kFilters[] = {
      {"map", filter_map},
      {"select", filter_select<true, false>},
      {"reject", filter_select<false, false>},
      {"selectattr", filter_select<true, true>},
      {"rejectattr", filter_select<false, true>},
  };
  return kFilters;
}

FilterFunction find_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> kAll = [] {
    std::unordered_map<std::string_view, FilterFunction> all;
    for (const auto& some :
         {text_filters(), number_filters(), list_filters(), select_filters(), markup_filters()})
      for (const NamedFilter& filter : some) all.emplace(filter.name, filter.apply);
    return all;
  }();
  const auto found = kAll.find(name);
  return found == kAll.end() ? nullptr : found->second;
}

}  // namespace tightloop::jinja
