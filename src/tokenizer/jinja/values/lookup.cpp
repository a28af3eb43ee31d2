#include "tokenizer/jinja/values/lookup.h"

#include <algorithm>

#include "tokenizer/jinja/values/python_repr.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop::jinja {

namespace {

bool is_any(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

/// What the immutable sandbox hides, where Python's object has it.
bool is_unsafe(const Value& object, std::string_view name) {
  const bool has_items = object.is_text() || object.is_list_or_tuple() || object.is(ValueKind::kDict);
  if (has_items && is_any(name, {"__len__", "__getitem__", "__iter__", "__contains__"})) return true;
  if (object.is(ValueKind::kDict)) return is_any(name, {"clear", "pop", "popitem", "setdefault", "update"});
  if (object.is(ValueKind::kList))
    return is_any(name, {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});
  return false;
}

bool every_object_has(std::string_view name) {
  return is_any(name, {"__class__", "__doc__", "__init__", "__dir__", "__eq__", "__hash__", "__repr__",
                       "__str__", "__module__", "__dict__", "__getattribute__", "__reduce__", "__sizeof__"});
}

Value unsafe(const Value& object, std::string_view name) {
  return Value::undefined(
      fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(object)));
}

std::string described_object(const Value& object) {
  if (object.is_none()) return "None";
  if (object.is(ValueKind::kNamespace)) return "jinja2.utils.Namespace object";
  return type_name(object) + " object";
}

/// Python's object[index]; missing where it raises an error.
Value plain_item(Run& run, const Value& object, const Value& index) {
  if (object.is(ValueKind::kDict)) {
    if (index.is_list_or_tuple()) run.step_over(index);
    if (index.is(ValueKind::kList) || index.is(ValueKind::kDict) || index.is(ValueKind::kView)) return {};
    const Value* found = object.dict().find(index);
    return found ? *found : Value();
  }
  if (!index.is_integer()) return {};
  int64_t at = index.integer();
  const auto place = [&](int64_t length) {
    if (at < 0) at += length;
    return at >= 0 && at < length;
  };
  switch (object.kind()) {
    case ValueKind::kText: {
      if (!place(static_cast<int64_t>(object.as_text().length))) return {};
      if (!object.as_text().is_ascii()) run.step(object.bytes().size() / 64);
      return run.text(std::string(points_between(object, at, at + 1)), object.as_text().markup);
    }
    case ValueKind::kList:
    case ValueKind::kTuple:
      return place(static_cast<int64_t>(object.items().size())) ? object.items()[static_cast<size_t>(at)]
                                                                : Value();
    case ValueKind::kRange: {
      const auto& range = object.as<RangeBody>();
      return place(range.count) ? Value(range.start + at * range.step) : Value();
    }
    default:
      return {};
  }
}

struct SliceBounds {
  int64_t start, stop, step;
  int64_t count() const {
    if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
    return start > stop ? (start - stop - 1) / -step + 1 : 0;
  }
};

SliceBounds slice_bounds(int64_t length, const Value& start, const Value& stop, const Value& step) {
  const auto given = [](const Value& value) { return !value.is_none() && !value.is(ValueKind::kMissing); };
  const auto number = [](const Value& value) {
    if (!value.is_integer()) fail("slice indices must be integers or None, not {}", type_name(value));
    // So far out that it means the same, and adding to it cannot overflow.
    return std::clamp<int64_t>(value.integer(), -(int64_t{1} << 62), int64_t{1} << 62);
  };
  SliceBounds bounds{0, 0, given(step) ? number(step) : 1};
  if (bounds.step == 0) fail("slice step cannot be zero");
  const int64_t lowest = bounds.step < 0 ? -1 : 0, highest = bounds.step < 0 ? length - 1 : length;
  const auto clip = [&](const Value& value, int64_t otherwise) {
    if (!given(value)) return otherwise;
    const int64_t at = number(value);
    return std::clamp(at < 0 ? at + length : at, lowest, std::max(lowest, highest));
  };
  bounds.start = clip(start, bounds.step < 0 ? highest : lowest);
  bounds.stop = clip(stop, bounds.step < 0 ? lowest : highest);
  return bounds;
}

}  // namespace

std::string_view points_between(const Value& text, int64_t begin, int64_t end) {
  const std::string& bytes = text.bytes();
  const std::string_view view = bytes;
  if (begin >= end) return {};
  if (text.as_text().is_ascii())
    return view.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  const auto skip = [&](size_t at, int64_t points) {
    for (; points > 0 && at < bytes.size(); --points)
      at += decode_char(bytes.data() + at, bytes.data() + bytes.size()).length;
    return at;
  };
  const size_t first = skip(0, begin);
  return view.substr(first, skip(first, end - begin) - first);
}

Value own_attribute(Run& run, const Value& object, std::string_view name) {
  switch (object.kind()) {
    case ValueKind::kText:
      return text_method(run, object, name);
    case ValueKind::kNamespace: {
      const Value* found = object.as<NamespaceBody>().attributes.find(name);
      return found ? *found : Value();
    }
    case ValueKind::kLoop:
    case ValueKind::kCallable:
      return object.as<CallableBody>().attribute(run, name);
    default:
      return container_method(run, object, name);
  }
}

Value get_attribute(Run& run, const Value& object, std::string_view name) {
  if (is_unsafe(object, name) || every_object_has(name)) return unsafe(object, name);
  if (object.is_undefined()) fail("{}", object.why_undefined());
  if (Value own = own_attribute(run, object, name); !own.is(ValueKind::kMissing)) return own;
  if (object.is(ValueKind::kDict))
    if (const Value* found = object.dict().find(name)) return *found;
  return Value::undefined(fmt::format("'{}' has no attribute '{}'", described_object(object), name));
}

Value get_item(Run& run, const Value& object, const Value& index) {
  if (object.is_undefined()) fail("{}", object.why_undefined());
  if (Value item = plain_item(run, object, index); !item.is(ValueKind::kMissing)) return item;
  if (!index.is_text())
    return Value::undefined(
        fmt::format("'{}' has no element {}", described_object(object), repr_of(run, index)));
  const std::string& name = index.bytes();
  if (is_unsafe(object, name) || every_object_has(name)) return unsafe(object, name);
  if (Value own = own_attribute(run, object, name); !own.is(ValueKind::kMissing)) return own;
  return Value::undefined(
      fmt::format("'{}' has no attribute {}", described_object(object), quoted_repr(name)));
}

Value get_slice(Run& run, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) fail("{}", object.why_undefined());
  if (object.is_text()) {
    run.step(object.bytes().size() / 64);
    const auto bounds = slice_bounds(static_cast<int64_t>(object.as_text().length), start, stop, step);
    const bool markup = object.as_text().markup;
    if (bounds.step == 1)
      return run.text(std::string(points_between(object, bounds.start, bounds.stop)), markup);
    std::vector<std::string_view> points;
    const std::string& bytes = object.bytes();
    run.charge(object.as_text().length * sizeof(std::string_view));
    for (size_t at = 0; at < bytes.size(); at += points.back().size())
      points.push_back(std::string_view(bytes).substr(
          at, decode_char(bytes.data() + at, bytes.data() + bytes.size()).length));
    std::string picked;
    for (int64_t i = 0, count = bounds.count(); i < count; ++i)
      picked += points[static_cast<size_t>(bounds.start + i * bounds.step)];
    return run.text(std::move(picked), markup);
  }
  if (object.is(ValueKind::kRange)) {
    const auto& range = object.as<RangeBody>();
    const auto bounds = slice_bounds(range.count, start, stop, step);
    return run.range(range.start + bounds.start * range.step, range.start + bounds.stop * range.step,
                     range.step * bounds.step);
  }
  if (!object.is_list_or_tuple()) fail("'{}' object cannot be sliced", type_name(object));
  const auto& items = object.items();
  const auto bounds = slice_bounds(static_cast<int64_t>(items.size()), start, stop, step);
  run.step(static_cast<uint64_t>(bounds.count()));
  std::vector<Value> picked;
  for (int64_t i = 0, count = bounds.count(); i < count; ++i)
    picked.push_back(items[static_cast<size_t>(bounds.start + i * bounds.step)]);
  return object.is(ValueKind::kTuple) ? run.tuple(std::move(picked)) : run.list(std::move(picked));
}

}  // namespace tightloop::jinja
