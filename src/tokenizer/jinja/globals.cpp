#include <array>
#include <ctime>

#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/values/python_repr.h"

namespace tightloop::jinja {

namespace {

/// dict(pairs, key=value).
DictBody dict_from(Run& run, CallArguments& arguments) {
  if (arguments.positional.size() > 1)
    fail("dict expected at most 1 argument, got {}", arguments.positional.size());
  DictBody made;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is_undefined()) fail("{}", source.why_undefined());
    if (source.is(ValueKind::kDict)) {
      made = source.dict();
    } else {
      for (const Value& pair : run.items_of(source)) {
        const auto both = run.items_of(pair);
        if (both.size() != 2) fail("a dict is made of pairs, and one has {} items", both.size());
        run.step_over(both[0]);
        made.set(both[0], both[1]);
      }
    }
  }
  for (auto& [name, value] : arguments.keywords) made.set(name, std::move(value));
  run.step(made.entries.size());
  return made;
}

struct CyclerBody : CallableBody {
  std::vector<Value> items;
  size_t at = 0;
  Value call(Run&, CallArguments&) override { fail("'Cycler' object is not callable"); }
  Value attribute(Run& run, std::string_view name) override {
    if (name == "current") return items.empty() ? Value() : items[at];
    if (name == "pos") return Value(static_cast<int64_t>(at));
    if (name == "items") return run.tuple(items);
    if (name != "next" && name != "reset") return {};
    const auto self = std::static_pointer_cast<CyclerBody>(shared_from_this());
    if (name == "next")
      return run.function("next", [self](Run&, CallArguments& arguments) {
        bind("next", arguments, {});
        if (self->items.empty()) return Value::none();
        const Value item = self->items[self->at];
        self->at = (self->at + 1) % self->items.size();
        return item;
      });
    return run.function("reset", [self](Run&, CallArguments& arguments) {
      bind("reset", arguments, {});
      self->at = 0;
      return Value::none();
    });
  }
  void clear() override { items.clear(); }
};

struct JoinerBody : CallableBody {
  Value separator;
  bool used = false;
  Value call(Run&, CallArguments& arguments) override {
    bind("joiner", arguments, {});
    return std::exchange(used, true) ? separator : Value::text("");
  }
  Value attribute(Run&, std::string_view name) override {
    return name == "sep" ? separator : name == "used" ? Value(used) : Value();
  }
  void clear() override { separator = Value(); }
};

/// The template itself, of which Python has no more than its blocks.
struct SelfBody : CallableBody {
  Value call(Run&, CallArguments&) override { fail("'TemplateReference' object is not callable"); }
  Value attribute(Run&, std::string_view) override { fail("'self' of blocks is not supported"); }
  std::string repr(Run&) override { return "<TemplateReference None>"; }
};

Value make_range(Run& run, CallArguments& arguments) {
  if (!arguments.keywords.empty()) fail("range() takes no keyword arguments");
  const auto& given = arguments.positional;
  if (given.empty() || given.size() > 3) fail("range expected 1 to 3 arguments, got {}", given.size());
  if (given.size() == 1) return run.range(0, to_integer(given[0]), 1);
  return run.range(to_integer(given[0]), to_integer(given[1]), given.size() == 3 ? to_integer(given[2]) : 1);
}

Value make_namespace(Run& run, CallArguments& arguments) {
  auto body = std::make_shared<NamespaceBody>();
  body->attributes = dict_from(run, arguments);
  return Value(ValueKind::kNamespace, run.adopt(std::move(body)));
}

Value time_text(Run& run, CallArguments& arguments) {
  const auto given = bind("strftime_now", arguments, {"format"}, 1);
  if (!given[0].is_text()) fail("strftime() argument 1 must be str, not {}", type_name(given[0]));
  std::tm parts{};
  const std::time_t now = run.now();
  ::localtime_r(&now, &parts);
  // Python fills these in itself: fractions of seconds, and the zone, which its plain times do not have.
  std::string format;
  const std::string& text = given[0].bytes();
  if (text.size() > 1000) fail("the format of a time is too long");
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%' || i + 1 == text.size()) {
      format += text[i];
      continue;
    }
    const char kind = text[++i];
    if (kind == 'f')
      format += "000000";
    else if (kind != 'z' && kind != 'Z')
      (format += '%') += kind;
  }
  if (format.empty()) return run.text("");
  std::string result(64 * 1024, '\0');
  // A mark at the end tells an empty result from one that does not fit.
  const size_t size = std::strftime(result.data(), result.size(), (format + "!").c_str(), &parts);
  if (size == 0) fail("the format of a time is too long");
  return run.text(result.substr(0, size - 1));
}

}  // namespace

DictBody global_functions(Run& run) {
  DictBody globals;
  const auto add = [&](const char* name, Value (*function)(Run&, CallArguments&)) {
    globals.set(name, run.function(name, function));
  };
  add("range", make_range);
  add("namespace", make_namespace);
  add("strftime_now", time_text);
  add("dict", [](Run& inner, CallArguments& arguments) { return inner.dict(dict_from(inner, arguments)); });
  add("cycler", [](Run& inner, CallArguments& arguments) {
    if (arguments.positional.empty()) fail("at least one item has to be provided");
    auto body = std::make_shared<CyclerBody>();
    body->items = std::move(arguments.positional);
    return inner.callable(std::move(body));
  });
  add("joiner", [](Run& inner, CallArguments& arguments) {
    const auto given = bind("joiner", arguments, {"sep"});
    auto body = std::make_shared<JoinerBody>();
    body->separator = given[0].is(ValueKind::kMissing) ? Value::text(", ") : given[0];
    return inner.callable(std::move(body));
  });
  add("lipsum", [](Run&, CallArguments&) -> Value { fail("lipsum() is not supported"); });
  add("raise_exception", [](Run& inner, CallArguments& arguments) -> Value {
    const auto given = bind("raise_exception", arguments, {"message"}, 1);
    throw RaisedByTemplate{str_of(inner, given[0])};
  });
  globals.set("self", run.callable(std::make_shared<SelfBody>()));
  return globals;
}

}  // namespace tightloop::jinja
