#include <algorithm>

#include "tokenizer/jinja/filters/filters.h"
#include "tokenizer/jinja/values/lookup.h"
#include "tokenizer/jinja/values/operators.h"
#include "tokenizer/jinja/values/python_repr.h"
#include "tokenizer/jinja/values/text_search.h"
#include "tokenizer/unicode/lower_case.h"
#include "tokenizer/unicode/python_text.h"

namespace tightloop::jinja {

AttributePath::AttributePath(const Value& attribute) {
  if (attribute.is_none() || attribute.is(ValueKind::kMissing)) return;
  if (!attribute.is_text()) {
    parts_.push_back(attribute);
    return;
  }
  for (const std::string_view part : split_at(attribute.bytes(), ".", -1)) {
    const bool digits = part.size() < 18 && python_text::all_have(part, python_text::kDigit) &&
                        part.find_first_not_of("0123456789") == part.npos;
    parts_.push_back(digits ? Value(int64_t{std::stoll(std::string(part))}) : Value::text(std::string(part)));
  }
}

Value AttributePath::of(Run& run, Value item, const Value& otherwise) const {
  for (const Value& part : parts_) {
    run.step();
    item = get_item(run, item, part);
    if (item.is_undefined() && !otherwise.is(ValueKind::kMissing) && !otherwise.is_none()) item = otherwise;
  }
  return item;
}

Value all_given(Run& run, const Value& input, const CallArguments& arguments) {
  std::vector<Value> all = arguments.positional;
  for (const auto& [name, value] : arguments.keywords) all.push_back(value);
  all.push_back(input);
  return run.tuple(std::move(all));
}

Value ignoring_case(Run& run, const Value& value) {
  return value.is_text() ? run.text(lower_case(value.bytes())) : value;
}

namespace {

/// Items with what they are sorted by, in Python's stable order.
using Keyed = std::pair<Value, Value>;
void sort_keyed(Run& run, std::vector<Keyed>& items, bool reverse) {
  const auto before = [&](const Keyed& a, const Keyed& b) {
    run.step_over(a.first, b.first);
    return less(a.first, b.first);
  };
  // Equal ones keep their order, backwards, too. A merge sort, since a comparison may throw or, of numbers
  // that are no numbers, contradict another.
  if (reverse) std::ranges::reverse(items);
  std::stable_sort(items.begin(), items.end(), before);
  if (reverse) std::ranges::reverse(items);
}

std::vector<Value> values_of(std::vector<Keyed> items) {
  std::vector<Value> values;
  for (Keyed& item : items) values.push_back(std::move(item.second));
  return values;
}

Value filter_sort(Run& run, const Value& input, CallArguments& arguments) {
  const auto given = bind("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<AttributePath> paths;
  if (given[2].is_text())
    for (const std::string_view part : split_at(given[2].bytes(), ",", -1))
      paths.emplace_back(Value::text(std::string(part)));
  else
    paths.emplace_back(given[2]);
  std::vector<Keyed> items;
  for (const Value& item : run.items_of(input)) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) {
      const Value part = path.of(run, item);
      key.push_back(truth(given[1]) ? part : ignoring_case(run, part));
    }
    items.emplace_back(run.list(std::move(key)), item);
  }
  sort_keyed(run, items, truth(given[0]));
  return run.list(values_of(std::move(items)));
}

Value filter_dictsort(Run& run, const Value& input, CallArguments& arguments) {
  const auto given = bind("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = given[1].is(ValueKind::kMissing) ? "key" : str_of(run, given[1]);
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (input.is_undefined()) fail("{}", input.why_undefined());
  if (!input.is(ValueKind::kDict)) fail("'{}' object has no attribute 'items'", type_name(input));
  std::vector<Keyed> items;
  for (const auto& [key, value] : input.dict().entries) {
    const Value& part = by == "key" ? key : value;
    items.emplace_back(truth(given[0]) ? part : ignoring_case(run, part), run.tuple({key, value}));
  }
  sort_keyed(run, items, truth(given[2]));
  return run.list(values_of(std::move(items)));
}

Value filter_groupby(Run& run, const Value& input, CallArguments& arguments) {
  const auto given = bind("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(given[0]);
  const bool exact = truth(given[2]);
  std::vector<Keyed> items;
  for (const Value& item : run.items_of(input)) {
    const Value key = path.of(run, item, given[1]);
    items.emplace_back(exact ? key : ignoring_case(run, key), item);
  }
  sort_keyed(run, items, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < items.size();) {
    std::vector<Value> members;
    size_t end = begin;
    for (; end < items.size() && equal(items[end].first, items[begin].first); ++end) {
      run.step();
      members.push_back(items[end].second);
    }
    end = std::max(end, begin + 1);  // what is not even equal to itself
    if (members.empty()) members.push_back(items[begin].second);
    const Value key = exact ? items[begin].first : path.of(run, members[0], given[1]);
    const Value group = run.tuple({key, run.list(std::move(members))});
    group.as<ListBody>().group = true;
    groups.push_back(group);
    begin = end;
  }
  return run.list(std::move(groups));
}

Value least_or_most(Run& run, const Value& input, CallArguments& arguments, bool most) {
  const auto given = bind(most ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(given[1]);
  Value best, best_key;
  const auto next = run.iterate(input);
  for (Value item; next(item);) {
    const Value part = path.of(run, item);
    const Value key = truth(given[0]) ? part : ignoring_case(run, part);
    const bool better =
        best.is(ValueKind::kMissing) || (most ? less(best_key, key, ">") : less(key, best_key));
    if (better) best = item, best_key = key;
  }
  return best.is(ValueKind::kMissing) ? Value::undefined("No aggregated item, sequence was empty.") : best;
}

Value filter_sum(Run& run, const Value& input, CallArguments& arguments) {
  const auto given = bind("sum", arguments, {"attribute", "start"});
  const AttributePath path(given[0]);
  Value total = given[1].is(ValueKind::kMissing) ? Value(int64_t{0}) : given[1];
  if (total.is_text()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  const auto next = run.iterate(input);
  for (Value item; next(item);) total = binary(run, "+", total, path.of(run, item));
  return total;
}

Value filter_length(Run& run, const Value& input, CallArguments& arguments) {
  bind("length", arguments, {});
  return Value(length_of(run, input));
}

Value filter_first(Run& run, const Value& input, CallArguments& arguments) {
  bind("first", arguments, {});
  Value item;
  return run.iterate(input)(item) ? item : Value::undefined("No first item, sequence was empty.");
}

/// From the end, where Python's reversed() can.
bool can_reverse(const Value& value) {
  return !value.is_number() && !value.is_none() && !value.is(ValueKind::kIterator) &&
         !value.is(ValueKind::kCallable) && !value.is(ValueKind::kNamespace) && !value.is(ValueKind::kLoop);
}

Value filter_last(Run& run, const Value& input, CallArguments& arguments) {
  bind("last", arguments, {});
  // Python's Undefined has no __reversed__, but a length and items, which raise.
  if (!can_reverse(input)) fail("'{}' object is not reversible", type_name(input));
  if (input.is_text()) {
    const auto length = static_cast<int64_t>(input.as_text().length);
    if (length == 0) return Value::undefined("No last item, sequence was empty.");
    return run.text(std::string(points_between(input, length - 1, length)), input.as_text().markup);
  }
  const auto items = run.items_of(input);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value filter_reverse(Run& run, const Value& input, CallArguments& arguments) {
  bind("reverse", arguments, {});
  if (input.is_text()) return get_slice(run, input, {}, {}, Value(int64_t{-1}));
  if (input.is_number() || input.is_none()) fail("argument must be iterable");
  std::vector<Value> items = run.items_of(input);
  std::ranges::reverse(items);
  Value list = run.list(std::move(items));
  if (!can_reverse(input)) return list;
  Value iterator = run.iterator(run.iterate(list), list);
  iterator.as<IteratorBody>().reversed = true;
  return iterator;
}

Value filter_list(Run& run, const Value& input, CallArguments& arguments) {
  bind("list", arguments, {});
  return run.list(run.items_of(input));
}

Value filter_join(Run& run, const Value& input, CallArguments& arguments) {
  const auto given = bind("join", arguments, {"d", "attribute"});
  const AttributePath path(given[1]);
  const std::string between = given[0].is(ValueKind::kMissing) ? "" : str_of(run, given[0]);
  std::string result, made;
  bool first = true;
  const auto next = run.iterate(input);
  for (Value item; next(item); first = false) {
    const Value part = path.of(run, item);
    const auto text = text_view(run, part, made);
    run.charge(text.size() + between.size());
    if (!first) result += between;
    result += text;
    if (result.size() > run.limits().value_bytes) fail("the template builds a text that is too long");
  }
  return run.text(std::move(result));
}

Value filter_items(Run& run, const Value& input, CallArguments& arguments) {
  bind("items", arguments, {});
  return run.iterator(
      [&run, input, at = size_t{0}](Value& item) mutable {
        if (input.is_undefined()) return false;
        if (!input.is(ValueKind::kDict)) fail("Can only get item pairs from a mapping.");
        const auto& entries = input.dict().entries;
        if (at >= entries.size()) return false;
        item = run.tuple({entries[at].first, entries[at].second});
        ++at;
        return true;
      },
      input);
}

Value filter_batch(Run& run, const Value& input, CallArguments& arguments) {
  const Value all_values = all_given(run, input, arguments);
  const auto given = bind("batch", arguments, {"linecount", "fill_with"}, 1);
  const bool fills = !given[1].is(ValueKind::kMissing) && !given[1].is_none();
  auto next = std::make_shared<std::function<bool(Value&)>>();
  return run.iterator(
      [&run, input, next, count = given[0], fill = given[1], fills](Value& batch) {
        const int64_t size = to_integer(count);
        if (!*next) *next = run.iterate(input);
        std::vector<Value> items;
        for (Value item; static_cast<int64_t>(items.size()) != size && (*next)(item);) items.push_back(item);
        if (items.empty()) return false;
        while (fills && static_cast<int64_t>(items.size()) < size) {
          run.charge(sizeof(Value));
          items.push_back(fill);
        }
        batch = run.list(std::move(items));
        return true;
      },
      all_values);
}

Value filter_slice(Run& run, const Value& input, CallArguments& arguments) {
  const Value all_values = all_given(run, input, arguments);
  const auto given = bind("slice", arguments, {"slices", "fill_with"}, 1);
  const bool fills = !given[1].is(ValueKind::kMissing) && !given[1].is_none();
  auto all = std::make_shared<std::vector<Value>>();
  return run.iterator(
      [&run, input, all, count = given[0], fill = given[1], fills, number = int64_t{0}](Value& part) mutable {
        const int64_t slices = to_integer(count);
        if (number == 0) *all = run.items_of(input);
        if (slices == 0) fail("integer division or modulo by zero");
        if (number >= slices) return false;
        const auto length = static_cast<int64_t>(all->size());
        const int64_t each = length / slices, extra = length % slices;
        const int64_t begin = number * each + std::min(number, extra),
                      end = begin + each + (number < extra ? 1 : 0);
        std::vector<Value> items(all->begin() + begin, all->begin() + end);
        if (fills && number >= extra) items.push_back(fill);
        ++number;
        run.step();
        part = run.list(std::move(items));
        return true;
      },
      all_values);
}

Value filter_unique(Run& run, const Value& input, CallArguments& arguments) {
  const Value all_values = all_given(run, input, arguments);
  const auto given = bind("unique", arguments, {"case_sensitive", "attribute"});
  auto seen = std::make_shared<DictBody>();
  auto next = std::make_shared<std::function<bool(Value&)>>();
  return run.iterator(
      [&run, input, seen, next, exact = truth(given[0]), path = AttributePath(given[1])](Value& item) {
        if (!*next) *next = run.iterate(input);
        while ((*next)(item)) {
          const Value part = path.of(run, item);
          const Value key = exact ? part : ignoring_case(run, part);
          run.step_over(key);
          if (seen->find(key)) continue;
          run.charge(4 * sizeof(Value));
          seen->set(key, Value::none());
          return true;
        }
        return false;
      },
      all_values);
}

Value filter_default(Run&, const Value& input, CallArguments& arguments) {
  const auto given = bind("default", arguments, {"default_value", "boolean"});
  const bool takes = input.is_undefined() || (truth(given[1]) && !truth(input));
  return !takes ? input : given[0].is(ValueKind::kMissing) ? Value::text("") : given[0];
}

Value filter_attr(Run& run, const Value& input, CallArguments& arguments) {
  const auto given = bind("attr", arguments, {"name"}, 1);
  if (!given[0].is_text()) fail("attribute name must be string, not '{}'", type_name(given[0]));
  if (input.is_undefined()) fail("{}", input.why_undefined());
  const Value own = own_attribute(run, input, given[0].bytes());
  return own.is(ValueKind::kMissing)
             ? Value::undefined(fmt::format("'{}' has no attribute '{}'", type_name(input), given[0].bytes()))
             : own;
}

}  // namespace

std::span<const NamedFilter> list_filters() {
  static constexpr NamedFilter kFilters[] = {
      {"sort", filter_sort},
      {"dictsort", filter_dictsort},
      {"groupby", filter_groupby},
      {"min",
       [](Run& run, const Value& input, CallArguments& a) { return least_or_most(run, input, a, false); }},
      {"max",
       [](Run& run, const Value& input, CallArguments& a) { return least_or_most(run, input, a, true); }},
      {"sum", filter_sum},
      {"length", filter_length},
      {"count", filter_length},
      {"first", filter_first},
      {"last", filter_last},
      {"reverse", filter_reverse},
      {"list", filter_list},
      {"join", filter_join},
      {"items", filter_items},
      {"batch", filter_batch},
      {"slice", filter_slice},
      {"unique", filter_unique},
      {"default", filter_default},
      {"d", filter_default},
      {"attr", filter_attr},
  };
  return kFilters;
}

}  // namespace tightloop::jinja
