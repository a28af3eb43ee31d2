#include "tokenizer/jinja/values/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/hash.h"
#include "tokenizer/jinja/values/fault.h"

namespace tightloop::jinja {

namespace {

constexpr size_t kFewEntries = 8;

size_t count_points(std::string_view text) {
  size_t continued = 0, at = 0;  // bytes 10xxxxxx, eight at a time
  for (uint64_t eight; at + 8 <= text.size(); at += 8) {
    std::memcpy(&eight, text.data() + at, 8);
    continued += static_cast<size_t>(std::popcount((eight >> 7) & ~(eight >> 6) & 0x0101010101010101u));
  }
  for (; at < text.size(); ++at) continued += (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80;
  return text.size() - continued;
}

/// -1, 0, 1, or 2 where one is not a number. Exact: a long double holds every int64.
int compare_numbers(const Value& left, const Value& right) {
  if (left.is_integer() && right.is_integer())
    return left.integer() < right.integer() ? -1 : left.integer() > right.integer();
  const auto wide = [](const Value& value) {
    return value.is_integer() ? static_cast<long double>(value.integer())
                              : static_cast<long double>(value.number());
  };
  const long double l = wide(left), r = wide(right);
  return l < r ? -1 : l > r ? 1 : l == r ? 0 : 2;
}

bool equal_items(const std::vector<Value>& left, const std::vector<Value>& right) {
  return std::ranges::equal(left, right, equal);
}

}  // namespace

TextBody::TextBody(std::string text, bool is_markup)
    : bytes(std::move(text)), length(count_points(bytes)), markup(is_markup) {
  weight = bytes.size();
}

TextBody::TextBody(std::string text, size_t code_points)
    : bytes(std::move(text)), length(code_points), markup(false) {
  weight = bytes.size();
}

Value Value::text_of_length(std::string text, size_t length) {
  return Value(ValueKind::kText, std::make_shared<TextBody>(std::move(text), length));
}

Value Value::text(std::string text, bool markup) {
  return Value(ValueKind::kText, std::make_shared<TextBody>(std::move(text), markup));
}

Value Value::undefined(std::string why) {
  auto body = std::make_shared<UndefinedBody>();
  body->why = std::move(why);
  return Value(ValueKind::kUndefined, std::move(body));
}

const std::string& Value::bytes() const { return as<TextBody>().bytes; }
const TextBody& Value::as_text() const { return as<TextBody>(); }
const std::vector<Value>& Value::items() const { return as<ListBody>().items; }
const DictBody& Value::dict() const { return as<DictBody>(); }
const std::string& Value::why_undefined() const { return as<UndefinedBody>().why; }

const Value* DictBody::find(const Value& key, size_t hash) const {
  if (entries.size() <= kFewEntries) {
    for (const auto& [other, value] : entries)
      if (equal(other, key)) return &value;
    return nullptr;
  }
  const auto [first, last] = places_.equal_range(hash);
  for (auto place = first; place != last; ++place)
    if (equal(entries[place->second].first, key)) return &entries[place->second].second;
  return nullptr;
}

const Value* DictBody::find(const Value& key) const { return find(key, hash_of(key)); }

const Value* DictBody::find(std::string_view key) const {
  if (entries.size() > kFewEntries) return find(Value::text(std::string(key)));
  for (const auto& [other, value] : entries)
    if (other.is_text() && other.bytes() == key) return &value;
  return nullptr;
}

void DictBody::set(Value key, Value value) {
  const size_t hash = hash_of(key);
  if (const Value* found = find(key, hash)) {
    const_cast<Value&>(*found) = std::move(value);  // an entry of this dict
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() <= kFewEntries) return;
  if (places_.empty())
    for (size_t i = 0; i + 1 < entries.size(); ++i) places_.emplace(hash_of(entries[i].first), i);
  places_.emplace(hash, entries.size() - 1);
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kMissing:
    case ValueKind::kUndefined:
    case ValueKind::kNone:
      return false;
    case ValueKind::kBoolean:
    case ValueKind::kInteger:
      return value.integer() != 0;
    case ValueKind::kFloat:
      return value.number() != 0;
    case ValueKind::kText:
      return !value.bytes().empty();
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kView:
      return !value.items().empty();
    case ValueKind::kDict:
      return !value.dict().entries.empty();
    case ValueKind::kRange:
      return value.as<RangeBody>().count > 0;
    default:
      return true;
  }
}

bool equal(const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) return compare_numbers(left, right) == 0;
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case ValueKind::kMissing:
    case ValueKind::kUndefined:
    case ValueKind::kNone:
      return true;
    case ValueKind::kText:
      return left.bytes() == right.bytes();
    case ValueKind::kList:
    case ValueKind::kTuple:
      return left.body() == right.body() || equal_items(left.items(), right.items());
    case ValueKind::kDict: {
      const auto &mine = left.dict().entries, &other = right.dict().entries;
      if (left.body() == right.body()) return true;
      return mine.size() == other.size() && std::ranges::all_of(mine, [&](const auto& entry) {
               const Value* found = right.dict().find(entry.first);
               return found && equal(entry.second, *found);
             });
    }
    case ValueKind::kRange: {
      const auto &mine = left.as<RangeBody>(), &other = right.as<RangeBody>();
      if (mine.count != other.count) return false;
      return mine.count == 0 || (mine.start == other.start && (mine.count == 1 || mine.step == other.step));
    }
    default:
      return left.body() == right.body();
  }
}

bool less(const Value& left, const Value& right, const char* sign) {
  if (left.is_number() && right.is_number()) return compare_numbers(left, right) == -1;
  if (left.is_undefined()) fail("{}", left.why_undefined());
  if (right.is_undefined()) fail("{}", right.why_undefined());
  if (left.is_text() && right.is_text()) return left.bytes() < right.bytes();
  if (left.kind() == right.kind() && left.is_list_or_tuple()) {
    const auto &mine = left.items(), &other = right.items();
    for (size_t i = 0; i < mine.size() && i < other.size(); ++i)
      if (!equal(mine[i], other[i])) return less(mine[i], other[i], sign);
    return mine.size() < other.size();
  }
  fail("'{}' is not supported between instances of '{}' and '{}'", sign, type_name(left), type_name(right));
}

size_t hash_of(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kBoolean:
    case ValueKind::kInteger:
      return std::hash<int64_t>()(value.integer());
    case ValueKind::kFloat: {
      const double number = value.number();
      if (number == std::floor(number) && std::abs(number) < 9e18)
        return std::hash<int64_t>()(static_cast<int64_t>(number));
      return std::hash<double>()(number);
    }
    case ValueKind::kText:
      return hash64(value.bytes());
    case ValueKind::kTuple: {
      size_t hash = 3;
      for (const Value& item : value.items()) hash = hash * 1'000'003 + hash_of(item);
      return hash;
    }
    case ValueKind::kList:
    case ValueKind::kDict:
    case ValueKind::kView:
      fail("unhashable type: '{}'", type_name(value));
    default:
      return std::hash<const void*>()(value.is_undefined() ? nullptr : value.body().get());
  }
}

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kMissing:
    case ValueKind::kUndefined:
      return "Undefined";
    case ValueKind::kNone:
      return "NoneType";
    case ValueKind::kBoolean:
      return "bool";
    case ValueKind::kInteger:
      return "int";
    case ValueKind::kFloat:
      return "float";
    case ValueKind::kText:
      return value.as_text().markup ? "Markup" : "str";
    case ValueKind::kList:
      return "list";
    case ValueKind::kTuple:
      return "tuple";
    case ValueKind::kDict:
      return "dict";
    case ValueKind::kView:
      return value.as<ListBody>().view;
    case ValueKind::kRange:
      return "range";
    case ValueKind::kIterator:
      return value.as<IteratorBody>().reversed ? "list_reverseiterator" : "generator";
    case ValueKind::kNamespace:
      return "Namespace";
    case ValueKind::kLoop:
      return "LoopContext";
    case ValueKind::kCallable:
      return "function";
  }
  return "object";
}

}  // namespace tightloop::jinja
