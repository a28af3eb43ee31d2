#include <algorithm>
#include <bit>
#include <cmath>

#include "tokenizer/jinja/values/lookup.h"

namespace tightloop::jinja {

namespace {

using ObjectMethod = Value (*)(Run&, const Value& self, CallArguments& arguments);

Value bound(Run& run, const Value& self, std::string_view name, ObjectMethod method) {
  return run.function(
      std::string(name),
      [self, method](Run& inner, CallArguments& arguments) {
        inner.step_over(self);
        return method(inner, self, arguments);
      },
      self);
}

Value dict_entries(Run& run, const Value& self, const char* type, bool keys, bool values) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries)
    items.push_back(keys && values ? run.tuple({key, value}) : keys ? key : value);
  return run.view(type, std::move(items));
}

Value dict_method(Run& run, const Value& self, std::string_view name) {
  if (name == "items")
    return bound(run, self, name, [](Run& inner, const Value& dict, CallArguments& arguments) {
      bind("items", arguments, {});
      return dict_entries(inner, dict, "dict_items", true, true);
    });
  if (name == "keys")
    return bound(run, self, name, [](Run& inner, const Value& dict, CallArguments& arguments) {
      bind("keys", arguments, {});
      return dict_entries(inner, dict, "dict_keys", true, false);
    });
  if (name == "values")
    return bound(run, self, name, [](Run& inner, const Value& dict, CallArguments& arguments) {
      bind("values", arguments, {});
      return dict_entries(inner, dict, "dict_values", false, true);
    });
  if (name == "get")
    return run.function(
        "get",
        [self](Run&, CallArguments& arguments) {
          if (!arguments.keywords.empty()) fail("dict.get() takes no keyword arguments");
          const auto given = bind("get", arguments, {"key", "default"}, 1);
          const Value* found = self.dict().find(given[0]);
          return found ? *found : given[1].is(ValueKind::kMissing) ? Value::none() : given[1];
        },
        self);
  if (name == "copy")
    return bound(run, self, name, [](Run&, const Value& dict, CallArguments& arguments) {
      bind("copy", arguments, {});
      return dict;
    });
  if (name == "fromkeys")
    return bound(run, self, name, [](Run& inner, const Value&, CallArguments& arguments) {
      const auto given = bind("fromkeys", arguments, {"iterable", "value"}, 1);
      DictBody made;
      for (const Value& key : inner.items_of(given[0]))
        made.set(key, given[1].is(ValueKind::kMissing) ? Value::none() : given[1]);
      return inner.dict(std::move(made));
    });
  return {};
}

Value sequence_method(Run& run, const Value& self, std::string_view name) {
  if (name == "index")
    return bound(run, self, name, [](Run& inner, const Value& list, CallArguments& arguments) {
      const auto given = bind("index", arguments, {"value", "start", "stop"}, 1);
      const auto& items = list.items();
      const auto size = static_cast<int64_t>(items.size());
      const auto place = [&](const Value& value, int64_t otherwise) {
        if (value.is(ValueKind::kMissing)) return otherwise;
        const int64_t at = to_integer(value);
        return std::clamp<int64_t>(at < 0 ? std::max(at, -size) + size : at, 0, size);
      };
      for (int64_t i = place(given[1], 0), end = place(given[2], size); i < end; ++i) {
        inner.step_over(items[static_cast<size_t>(i)], given[0]);
        if (equal(items[static_cast<size_t>(i)], given[0])) return Value(i);
      }
      fail("the value is not in the list");
    });
  if (name == "count")
    return bound(run, self, name, [](Run& inner, const Value& list, CallArguments& arguments) {
      const auto given = bind("count", arguments, {"value"}, 1);
      return Value(static_cast<int64_t>(std::ranges::count_if(list.items(), [&](const Value& item) {
        inner.step_over(item, given[0]);
        return equal(item, given[0]);
      })));
    });
  if (name == "copy" && self.is(ValueKind::kList))
    return bound(run, self, name, [](Run& inner, const Value& list, CallArguments& arguments) {
      bind("copy", arguments, {});
      return inner.list(list.items());
    });
  if (self.is(ValueKind::kTuple) && self.as<ListBody>().group) {
    if (name == "grouper") return self.items()[0];
    if (name == "list") return self.items()[1];
  }
  return {};
}

Value number_method(Run& run, const Value& self, std::string_view name) {
  const bool whole = self.is_integer();
  if (name == "real" || (whole && name == "numerator")) return whole ? Value(self.integer()) : self;
  if (name == "imag") return whole ? Value(int64_t{0}) : Value(0.0);
  if (whole && name == "denominator") return Value(int64_t{1});
  if (name == "conjugate")
    return bound(run, self, name, [](Run&, const Value& number, CallArguments& arguments) {
      bind("conjugate", arguments, {});
      return number.is_integer() ? Value(number.integer()) : number;
    });
  if (whole && name == "bit_length")
    return bound(run, self, name, [](Run&, const Value& number, CallArguments& arguments) {
      bind("bit_length", arguments, {});
      const int64_t value = number.integer();
      const uint64_t size =
          value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
      return Value(static_cast<int64_t>(std::bit_width(size)));
    });
  if (!whole && name == "is_integer")
    return bound(run, self, name, [](Run&, const Value& number, CallArguments& arguments) {
      bind("is_integer", arguments, {});
      return Value(std::isfinite(number.number()) && number.number() == std::floor(number.number()));
    });
  return {};
}

}  // namespace

Value container_method(Run& run, const Value& object, std::string_view name) {
  switch (object.kind()) {
    case ValueKind::kDict:
      return dict_method(run, object, name);
    case ValueKind::kList:
    case ValueKind::kTuple:
      return sequence_method(run, object, name);
    case ValueKind::kBoolean:
    case ValueKind::kInteger:
    case ValueKind::kFloat:
      return number_method(run, object, name);
    case ValueKind::kRange: {
      const auto& range = object.as<RangeBody>();
      for (const auto& [part, number] : {std::pair<std::string_view, int64_t>{"start", range.start},
                                         {"stop", range.stop},
                                         {"step", range.step}})
        if (name == part) return Value(number);
      return {};
    }
    default:
      return {};
  }
}

}  // namespace tightloop::jinja
