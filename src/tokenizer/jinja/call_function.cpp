#include "tokenizer/jinja/interpreter.h"

#include "tokenizer/jinja/values/operators.h"

namespace tightloop::jinja {

/// A macro, or what `caller` is in a call block: a function of the template with the variables around it.
struct MacroBody : CallableBody {
  Interpreter* interpreter;
  const Statement* statement;
  FramePtr frame;

  Value call(Run& run, CallArguments& arguments) override {
    const int line = run.line;
    Value result = run.text(interpreter->call_function(*statement, frame, arguments));
    run.line = line;
    return result;
  }
  Value attribute(Run& run, std::string_view name) override {
    const FunctionBody& function = *statement->function;
    if (name == "name") return function.name.empty() ? Value::none() : run.text(function.name);
    if (name == "catch_kwargs") return Value(function.takes_kwargs);
    if (name == "catch_varargs") return Value(function.takes_varargs);
    if (name == "caller") return Value(function.takes_caller);
    if (name == "explicit_caller") return Value(function.explicit_caller);
    if (name != "arguments") return {};
    std::vector<Value> names;
    for (const auto& parameter : function.parameters) names.push_back(run.text(parameter->name));
    return run.tuple(std::move(names));
  }
  std::string repr(Run&) override {
    return statement->function->name.empty() ? "<Macro anonymous>"
                                             : "<Macro '" + statement->function->name + "'>";
  }
  void clear() override { frame.reset(); }
};

Value Interpreter::make_macro(const Statement& statement, const FramePtr& frame) {
  auto macro = std::make_shared<MacroBody>();
  macro->interpreter = this;
  macro->statement = &statement;
  macro->frame = frame;
  return run_.callable(std::move(macro));
}

std::string Interpreter::call_function(const Statement& statement, const FramePtr& outer,
                                       CallArguments& arguments) {
  const Run::Depth depth(run_);
  const FramePtr frame = make_frame(*statement.function, outer);
  enter(statement.function->loads, frame);
  bind_parameters(statement, frame, arguments);
  std::string buffer;
  std::string* const sink = std::exchange(sink_, &buffer);
  try {
    execute(statement.body, frame);
  } catch (...) {
    sink_ = sink;
    throw;
  }
  sink_ = sink;
  return buffer;
}

void Interpreter::bind_parameters(const Statement& statement, const FramePtr& frame,
                                  CallArguments& arguments) {
  const FunctionBody& function = *statement.function;
  const std::string name = function.name.empty() ? "None" : "'" + function.name + "'";
  const auto take = [&](const std::string& keyword) {
    for (auto at = arguments.keywords.begin(); at != arguments.keywords.end(); ++at) {
      if (at->first != keyword) continue;
      Value value = std::move(at->second);
      arguments.keywords.erase(at);
      return value;
    }
    return Value();
  };
  const size_t given = std::min(arguments.positional.size(), function.parameters.size());
  bool found_caller = given == function.parameters.size() && function.explicit_caller;
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    const Expression& parameter = *function.parameters[i];
    slot(parameter.variable, frame) = i < given ? arguments.positional[i] : take(parameter.name);
    if (i >= given && parameter.name == "caller") found_caller = true;
  }
  if (function.takes_caller && !found_caller) {
    Value caller = take("caller");
    if (caller.is(ValueKind::kMissing) || caller.is_none()) caller = Value::undefined("No caller defined");
    slot(function.caller, frame) = std::move(caller);
  }
  if (function.takes_kwargs) {
    DictBody rest;
    for (auto& [key, value] : arguments.keywords) rest.set(key, std::move(value));
    slot(function.kwargs, frame) = run_.dict(std::move(rest));
  } else if (!arguments.keywords.empty()) {
    fail("macro {} takes no keyword argument '{}'", name, arguments.keywords[0].first);
  }
  if (function.takes_varargs) {
    const auto rest = arguments.positional.begin() + static_cast<std::ptrdiff_t>(given);
    slot(function.varargs, frame) = run_.tuple({rest, arguments.positional.end()});
  } else if (arguments.positional.size() > given) {
    fail("macro {} takes not more than {} argument(s)", name, function.parameters.size());
  }
  // Defaults may use the parameters before them.
  const size_t plain = function.parameters.size() - function.defaults.size();
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    const Expression& parameter = *function.parameters[i];
    if (!slot(parameter.variable, frame).is(ValueKind::kMissing)) continue;
    Value value = i < plain ? Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name))
                            : evaluate(*function.defaults[i - plain], frame);
    slot(parameter.variable, frame) = std::move(value);
  }
}

bool LoopBody::peek() {
  if (!peeked) {
    if (!next(after)) after = Value();
    peeked = true;
  }
  return !after.is(ValueKind::kMissing);
}

bool LoopBody::advance(Value& item) {
  if (peeked && !after.is(ValueKind::kMissing)) {
    item = std::move(after);
  } else if (!next || !next(item)) {
    // The end, also where it was seen before: an iterator is asked once more, as Python does.
    return false;
  }
  peeked = false;
  after = Value();
  ++index0;
  before = std::move(current);
  current = item;
  return true;
}

int64_t LoopBody::length(Run& run) {
  if (known_length >= 0) return known_length;
  if (!iterable.is(ValueKind::kIterator)) return known_length = length_of(run, iterable);
  std::vector<Value> rest;
  for (Value item; next(item);) {
    run.charge(sizeof(Value));
    rest.push_back(std::move(item));
  }
  known_length = static_cast<int64_t>(rest.size()) + index0 + 1 + (after.is(ValueKind::kMissing) ? 0 : 1);
  next = run.iterate(run.list(std::move(rest)));
  return known_length;
}

Value LoopBody::attribute(Run& run, std::string_view name) {
  if (name == "index") return Value(index0 + 1);
  if (name == "index0") return Value(index0);
  if (name == "first") return Value(index0 == 0);
  if (name == "last") return Value(!peek());
  if (name == "length") return Value(length(run));
  if (name == "revindex") return Value(length(run) - index0);
  if (name == "revindex0") return Value(length(run) - index0 - 1);
  if (name == "depth") return Value(depth0 + 1);
  if (name == "depth0") return Value(depth0);
  if (name == "previtem") return index0 == 0 ? Value::undefined("there is no previous item") : before;
  if (name == "nextitem") return peek() ? after : Value::undefined("there is no next item");
  const auto self = std::static_pointer_cast<LoopBody>(shared_from_this());
  if (name == "cycle")
    return run.function("cycle", [self](Run&, CallArguments& arguments) {
      if (arguments.positional.empty() || !arguments.keywords.empty()) fail("no items for cycling given");
      return arguments.positional[static_cast<size_t>(self->index0) % arguments.positional.size()];
    });
  if (name == "changed")
    return run.function("changed", [self](Run& inner, CallArguments& arguments) {
      if (!arguments.keywords.empty()) fail("changed() takes no keyword arguments");
      bool same = self->changed_before && self->changed.size() == arguments.positional.size();
      for (size_t i = 0; same && i < self->changed.size(); ++i) {
        inner.step_over(self->changed[i], arguments.positional[i]);
        same = equal(self->changed[i], arguments.positional[i]);
      }
      self->changed_before = true;
      self->changed = std::move(arguments.positional);
      return Value(!same);
    });
  return {};
}

Value LoopBody::call(Run&, CallArguments& arguments) {
  if (!recurse) fail("The loop must have the 'recursive' marker to be called recursively.");
  return recurse(bind("loop", arguments, {"iterable"}, 1)[0], depth0 + 1);
}

std::string LoopBody::repr(Run& run) { return fmt::format("<LoopContext {}/{}>", index0 + 1, length(run)); }

void LoopBody::clear() {
  next = nullptr;
  recurse = nullptr;
  iterable = before = current = after = Value();
  changed.clear();
}

}  // namespace tightloop::jinja
