#include "tokenizer/jinja/values/run.h"

#include <algorithm>

#include "tokenizer/unicode/unicode.h"

namespace tightloop::jinja {

namespace {

struct FunctionValue : CallableBody {
  std::string name;
  std::function<Value(Run&, CallArguments&)> body;
  Value call(Run& run, CallArguments& arguments) override { return body(run, arguments); }
  std::string repr(Run&) override { return "<function " + name + ">"; }
};

}  // namespace

Run::~Run() {
  for (const auto& body : changing_) body->clear();
}

void Run::charge(uint64_t bytes) {
  if (bytes > limits_.value_bytes)
    fail("the template builds a value of {} bytes, and {} are allowed", bytes, limits_.value_bytes);
  if ((built_ += bytes) > limits_.built_bytes)
    fail("the template builds too much (more than {} bytes)", limits_.built_bytes);
}

Value Run::text(std::string text, bool markup) {
  charge(text.size() + sizeof(TextBody));
  return Value::text(std::move(text), markup);
}

void Run::hold(Shared& body, const Value& item) {
  body.depth = std::max(body.depth, item.depth() + 1);
  body.weight += item.weight();
}

void Run::check(const Shared& body) const {
  if (body.depth > limits_.value_depth)
    fail("lists and dicts nest too deeply (more than {} levels)", limits_.value_depth);
  if (body.weight > limits_.value_bytes)
    fail("the template builds a value of {} bytes, and {} are allowed", body.weight, limits_.value_bytes);
}

Value Run::sequence(ValueKind kind, std::vector<Value> items) {
  charge(items.size() * sizeof(Value) + sizeof(ListBody));
  auto body = std::make_shared<ListBody>();
  for (const Value& item : items) hold(*body, item);
  check(*body);
  body->items = std::move(items);
  return Value(kind, std::move(body));
}

Value Run::view(const char* type, std::vector<Value> items) {
  const Value made = sequence(ValueKind::kView, std::move(items));
  made.as<ListBody>().view = type;
  return made;
}

Value Run::dict(DictBody dict) {
  charge(dict.entries.size() * 2 * sizeof(Value) + sizeof(DictBody));
  auto body = std::make_shared<DictBody>(std::move(dict));
  for (const auto& [key, value] : body->entries) hold(*body, key), hold(*body, value);
  check(*body);
  return Value(ValueKind::kDict, std::move(body));
}

Value Run::range(int64_t start, int64_t stop, int64_t step) {
  constexpr int64_t kMost = 100'000;  // the sandbox's MAX_RANGE
  if (step == 0) fail("range() arg 3 must not be zero");
  using Wide = __int128;
  const Wide span = step > 0 ? Wide{stop} - start : Wide{start} - stop,
             stride = step > 0 ? Wide{step} : -Wide{step};
  const Wide count = span <= 0 ? 0 : (span + stride - 1) / stride;
  if (count > kMost) fail("Range too big. The sandbox blocks ranges larger than {}", kMost);
  auto body = std::make_shared<RangeBody>();
  body->start = start, body->stop = stop, body->step = step, body->count = static_cast<int64_t>(count);
  return Value(ValueKind::kRange, std::move(body));
}

Value Run::iterator(std::function<bool(Value&)> next, const Value& of) {
  charge(sizeof(IteratorBody) + 128);
  auto body = std::make_shared<IteratorBody>();
  body->next = std::move(next);
  hold(*body, of);
  check(*body);
  return Value(ValueKind::kIterator, std::move(body));
}

Value Run::function(std::string name, std::function<Value(Run&, CallArguments&)> body, const Value& of) {
  charge(sizeof(FunctionValue) + 64);
  auto made = std::make_shared<FunctionValue>();
  made->name = std::move(name);
  made->body = std::move(body);
  hold(*made, of);
  check(*made);
  return Value(ValueKind::kCallable, std::move(made));
}

void Run::keep(std::shared_ptr<Changing> body) {
  charge(256);
  if (changing_.size() >= next_sweep_) {
    std::erase_if(changing_, [](const auto& kept) { return kept.use_count() == 1; });
    next_sweep_ = 2 * changing_.size() + 1024;
  }
  changing_.push_back(std::move(body));
}

std::function<bool(Value&)> Run::iterate(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kMissing:
    case ValueKind::kUndefined:
      return [](Value&) { return false; };
    case ValueKind::kText:
      return [this, value, at = size_t{0}](Value& item) mutable {
        const std::string& bytes = value.bytes();
        if (at >= bytes.size()) return false;
        const size_t length = decode_char(bytes.data() + at, bytes.data() + bytes.size()).length;
        step();
        item = text(bytes.substr(at, length));
        at += length;
        return true;
      };
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kView:
      return [this, value, at = size_t{0}](Value& item) mutable {
        if (at >= value.items().size()) return false;
        step();
        item = value.items()[at++];
        return true;
      };
    case ValueKind::kDict:
      return [this, value, at = size_t{0}](Value& item) mutable {
        if (at >= value.dict().entries.size()) return false;
        step();
        item = value.dict().entries[at++].first;
        return true;
      };
    case ValueKind::kRange:
      return [this, value, at = int64_t{0}](Value& item) mutable {
        const auto& range = value.as<RangeBody>();
        if (at >= range.count) return false;
        step();
        item = Value(range.start + at++ * range.step);
        return true;
      };
    case ValueKind::kIterator:
      return [this, value](Value& item) {
        step();
        return value.as<IteratorBody>().next(item);
      };
    default:
      fail("'{}' object is not iterable", type_name(value));
  }
}

std::vector<Value> Run::items_of(const Value& value) {
  if (value.is_list_or_tuple() || value.is(ValueKind::kView)) {
    step(1 + value.items().size());
    charge(value.items().size() * sizeof(Value));
    return value.items();
  }
  std::vector<Value> items;
  const auto next = iterate(value);
  for (Value item; next(item);) {
    charge(sizeof(Value));
    items.push_back(std::move(item));
  }
  return items;
}

Value Run::call(const Value& callee, CallArguments& arguments) {
  const Depth depth(*this);
  step();
  if (callee.is_undefined()) fail("{}", callee.why_undefined());
  if (!callee.is(ValueKind::kCallable) && !callee.is(ValueKind::kLoop))
    fail("'{}' object is not callable", type_name(callee));
  // Held for the length of the call, which may drop the last other reference.
  const std::shared_ptr<Shared> body = callee.body();
  return static_cast<CallableBody&>(*body).call(*this, arguments);
}

std::vector<Value> bind(std::string_view function, CallArguments& arguments,
                        std::initializer_list<std::string_view> names, size_t required) {
  std::vector<Value> values(names.size());
  if (arguments.positional.size() > names.size())
    fail("{}() takes at most {} arguments ({} given)", function, names.size(), arguments.positional.size());
  std::ranges::move(arguments.positional, values.begin());
  for (auto& [name, value] : arguments.keywords) {
    const size_t at = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
    if (at == names.size()) fail("{}() got an unexpected keyword argument '{}'", function, name);
    if (at < arguments.positional.size()) fail("{}() got multiple values for argument '{}'", function, name);
    values[at] = std::move(value);
  }
  for (size_t i = 0; i < required; ++i)
    if (values[i].is(ValueKind::kMissing))
      fail("{}() missing a required argument: '{}'", function, *(names.begin() + i));
  return values;
}

int64_t to_integer(const Value& value) {
  if (value.is_undefined()) fail("{}", value.why_undefined());
  if (!value.is_integer()) fail("'{}' object cannot be interpreted as an integer", type_name(value));
  return value.integer();
}

}  // namespace tightloop::jinja
