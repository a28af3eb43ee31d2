#include <algorithm>

#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/name_walk.h"
#include "tokenizer/jinja/values/python_repr.h"

namespace tightloop::jinja {

template <class Action>
std::string Interpreter::captured(Action&& action) {
  std::string buffer;
  std::string* const outer = std::exchange(sink_, &buffer);
  const struct Restore {
    Interpreter& interpreter;
    std::string* outer;
    ~Restore() { interpreter.sink_ = outer; }
  } restore{*this, outer};
  action();
  return buffer;
}

void Interpreter::write(std::string_view text) {
  if (sink_->size() + text.size() > run_.limits().output_bytes)
    fail("the template writes more than {} bytes", run_.limits().output_bytes);
  *sink_ += text;
}

void Interpreter::write(const Value& value) {
  std::string made;
  write(text_view(run_, value, made));
}

Value& Interpreter::slot(const VariableRef& variable, const FramePtr& frame) {
  CallFrame* at = frame.get();
  for (int i = 0; i < variable.up && at; ++i) at = at->outer.get();
  if (!at || variable.slot < 0 || static_cast<size_t>(variable.slot) >= at->slots.size())
    fail("a variable has no place");  // the names are resolved, so this does not happen
  return at->slots[static_cast<size_t>(variable.slot)];
}

Value Interpreter::resolve(const std::string& name) {
  for (const DictBody* dict : {static_cast<const DictBody*>(&exported_), &record_})
    if (const Value* found = dict->find(name)) return *found;
  if (!globals_) globals_ = global_functions(run_);
  const Value* found = globals_->find(name);
  return found ? *found : Value();
}

void Interpreter::enter(const ScopeLoads& loads, const FramePtr& frame) {
  for (const ScopeLoad& load : loads) {
    switch (load.source) {
      case ScopeLoad::kParameter:
        break;
      case ScopeLoad::kFromRecord:
        slot(load.variable, frame) = resolve(load.name);
        break;
      case ScopeLoad::kFromOuter:
        slot(load.variable, frame) = slot(load.outer, frame);
        break;
      case ScopeLoad::kMissing:
        slot(load.variable, frame) = Value();
        break;
    }
  }
}

void Interpreter::leave(const ScopeLoads& loads, const FramePtr& frame) {
  for (const ScopeLoad& load : loads) slot(load.variable, frame) = Value();
}

FramePtr Interpreter::make_frame(const FunctionBody& function, FramePtr outer) {
  auto frame = std::make_shared<CallFrame>();
  frame->slots.resize(static_cast<size_t>(function.slots));
  frame->outer = std::move(outer);
  run_.charge(frame->slots.size() * sizeof(Value));
  return function.keeps_frame ? run_.adopt(std::move(frame)) : frame;
}

void Interpreter::render(const SyntaxTree& tree) {
  if (const Value* messages = record_.find("messages"); messages && messages->is_list_or_tuple())
    for (const Value& message : messages->items()) messages_.push_back(message.body().get());
  const FramePtr frame = make_frame(tree.function, nullptr);
  enter(tree.function.loads, frame);
  execute(tree.body, frame);
}

Interpreter::Flow Interpreter::execute(const Body& body, const FramePtr& frame) {
  const Run::Depth depth(run_);
  for (const auto& statement : body)
    if (const Flow flow = execute(*statement, frame); flow != Flow::kOn) return flow;
  return Flow::kOn;
}

Interpreter::Flow Interpreter::execute(const Statement& statement, const FramePtr& frame) {
  run_.step();
  run_.line = statement.line;
  Flow flow = Flow::kOn;
  switch (statement.kind) {
    case StatementKind::kData:
      write(statement.text);
      break;
    case StatementKind::kOutput:
      write(evaluate(*statement.expression, frame));
      break;
    case StatementKind::kIf:
      for (const auto& [test, body] : statement.branches)
        if (truth(evaluate(*test, frame))) return execute(body, frame);
      return execute(statement.otherwise, frame);
    case StatementKind::kFor:
      execute_for(statement, frame, flow);
      break;
    case StatementKind::kSet: {
      check_namespaces(*statement.targets[0], frame);
      const Value value = evaluate(*statement.expression, frame);
      run_.line = statement.line;
      assign(*statement.targets[0], value, frame, statement.exports);
      break;
    }
    case StatementKind::kMacro:
      assign(*statement.targets[0], make_macro(statement, frame), frame, statement.exports);
      break;
    case StatementKind::kSetBlock:
      return execute_set_block(statement, frame);
    case StatementKind::kWith:
      return execute_with(statement, frame);
    case StatementKind::kFilterBlock:
      return execute_filter_block(statement, frame);
    case StatementKind::kAutoescape:
      enter(statement.loads, frame);
      if (truth(evaluate(*statement.expression, frame)))
        fail("autoescape is not supported: chats are not HTML");
      flow = execute(statement.body, frame);
      leave(statement.loads, frame);
      break;
    case StatementKind::kGeneration:
      execute_generation(statement, frame);
      break;
    case StatementKind::kCallBlock:
      execute_call_block(statement, frame);
      break;
    case StatementKind::kBlock:
      execute_block(statement);
      break;
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return flow;
}

void Interpreter::check_namespaces(const Expression& target, const FramePtr& frame) {
  each_part(target, [&](const Expression& part) {
    if (part.kind == ExpressionKind::kNamespaceTarget &&
        !slot(part.variable, frame).is(ValueKind::kNamespace))
      fail("cannot assign attribute on non-namespace object");
  });
}

void Interpreter::assign(const Expression& target, const Value& value, const FramePtr& frame, bool exports) {
  if (target.kind == ExpressionKind::kNamespaceTarget) {
    const Value space = slot(target.variable, frame);
    if (!space.is(ValueKind::kNamespace)) fail("cannot assign attribute on non-namespace object");
    run_.charge(sizeof(Value));
    space.as<NamespaceBody>().attributes.set(target.attribute, value);
    return;
  }
  if (target.kind == ExpressionKind::kName) {
    slot(target.variable, frame) = value;
    if (exports) exported_.set(target.name, value);
    return;
  }
  if (value.is_undefined() && !target.operands.empty())
    fail("not enough values to unpack: {}", value.why_undefined());
  const std::vector<Value> items = run_.items_of(value);
  if (items.size() != target.operands.size())
    fail("{} values to unpack were expected, and there are {}", target.operands.size(), items.size());
  for (size_t i = 0; i < items.size(); ++i) assign(*target.operands[i], items[i], frame, exports);
}

/// The items for which the loop's `if` holds, tested one by one: what the body sets may decide of the next.
std::function<bool(Value&)> Interpreter::filtered(const Statement& statement, const Value& iterable,
                                                  const FramePtr& frame) {
  return [this, &statement, frame, next = run_.iterate(iterable), entered = false](Value& item) mutable {
    if (!entered) enter(statement.test_loads, frame);
    entered = true;
    while (next(item)) {
      assign(*statement.test_target[0], item, frame, false);
      if (truth(evaluate(*statement.test, frame))) return true;
    }
    return false;
  };
}

void Interpreter::execute_for(const Statement& statement, const FramePtr& frame, Flow& flow) {
  const Value iterable = evaluate(*statement.expression, frame);
  run_.line = statement.line;
  if (!statement.recursive) {
    flow = execute_loop(statement, iterable, frame, 0, frame);
    return;
  }
  const std::string text =
      captured([&] { execute_loop(statement, iterable, make_frame(*statement.function, frame), 0, frame); });
  write(text);
}

/// Of a loop over the messages: what it wrote for this one. A loop inside of it has had its say.
void Interpreter::note_turn(const Value& item, size_t begin) {
  if (sink_ != &output || !item.is(ValueKind::kDict) || output.size() == begin) return;
  if (!turns.empty() && turns.back().end > begin) return;
  // Most loops go through them in order.
  if (next_message_ >= messages_.size() || messages_[next_message_] != item.body().get()) {
    run_.step(messages_.size() / 8);
    next_message_ = static_cast<size_t>(std::ranges::find(messages_, item.body().get()) - messages_.begin());
    if (next_message_ == messages_.size()) return;
  }
  turns.push_back({next_message_++, begin, output.size()});
}

Interpreter::Flow Interpreter::execute_loop(const Statement& statement, const Value& iterable,
                                            const FramePtr& frame, int64_t depth, const FramePtr& outer) {
  Value source = iterable;
  if (statement.test) source = run_.iterator(filtered(statement, iterable, outer), iterable);
  const auto loop = std::make_shared<LoopBody>();
  loop->iterable = source;
  loop->next = run_.iterate(source);
  loop->depth0 = depth;
  if (statement.recursive)
    loop->recurse = [this, &statement, outer](const Value& items, int64_t level) {
      return run_.text(captured(
          [&] { execute_loop(statement, items, make_frame(*statement.function, outer), level, outer); }));
    };
  Value loop_value;
  if (statement.uses_loop) loop_value = Value(ValueKind::kLoop, run_.adopt(loop));
  // As jinja2 counts: of a body that was left by break or continue each time, "else" follows all the same.
  bool completed = false;
  for (Value item; loop->advance(item);) {
    run_.line = statement.line;
    assign(*statement.targets[0], item, frame, false);
    if (statement.uses_loop) slot(statement.variable, frame) = loop_value;
    enter(statement.loads, frame);
    const size_t begin = output.size();
    const Flow flow = execute(statement.body, frame);
    note_turn(item, begin);
    if (flow == Flow::kBreak) break;
    completed |= flow == Flow::kOn;
  }
  leave(statement.loads, frame);
  if (completed || statement.otherwise.empty()) return Flow::kOn;
  enter(statement.otherwise_loads, frame);
  const Flow flow = execute(statement.otherwise, frame);
  leave(statement.otherwise_loads, frame);
  return flow;
}

Interpreter::Flow Interpreter::execute_set_block(const Statement& statement, const FramePtr& frame) {
  Flow flow = Flow::kOn;
  enter(statement.loads, frame);
  std::string text = captured([&] { flow = execute(statement.body, frame); });
  if (flow != Flow::kOn) return flow;  // a break leaves before anything is set
  Value value = run_.text(std::move(text));
  value = apply_filters(statement.expression.get(), frame, std::move(value));
  check_namespaces(*statement.targets[0], frame);
  assign(*statement.targets[0], value, frame, statement.exports);
  leave(statement.loads, frame);
  return Flow::kOn;
}

Interpreter::Flow Interpreter::execute_filter_block(const Statement& statement, const FramePtr& frame) {
  Flow flow = Flow::kOn;
  enter(statement.loads, frame);
  std::string text = captured([&] { flow = execute(statement.body, frame); });
  if (flow != Flow::kOn) return flow;
  const Value value = apply_filters(statement.expression.get(), frame, run_.text(std::move(text)));
  if (!value.is_text()) fail("the filter of a block gave '{}' instead of a text", type_name(value));
  write(value);
  leave(statement.loads, frame);
  return Flow::kOn;
}

Interpreter::Flow Interpreter::execute_with(const Statement& statement, const FramePtr& frame) {
  enter(statement.loads, frame);
  for (size_t i = 0; i < statement.targets.size(); ++i)
    assign(*statement.targets[i], evaluate(*statement.values[i], frame), frame, false);
  const Flow flow = execute(statement.body, frame);
  leave(statement.loads, frame);
  return flow;
}

void Interpreter::execute_generation(const Statement& statement, const FramePtr& frame) {
  CallArguments none;
  const std::string text = call_function(statement, frame, none);
  // As transformers counts: from what the template has written so far. Inside of a macro that is less than it
  // will be.
  generations.emplace_back(output.size(), output.size() + text.size());
  generated_texts.push_back(text);
  write(text);
}

void Interpreter::execute_call_block(const Statement& statement, const FramePtr& frame) {
  const Value value = evaluate_call(*statement.expression, frame, make_macro(statement, frame));
  if (!value.is_text()) fail("a call block calls what gives '{}' instead of a text", type_name(value));
  write(value);
}

void Interpreter::execute_block(const Statement& statement) {
  const FramePtr frame = make_frame(*statement.function, nullptr);
  enter(statement.function->loads, frame);
  execute(statement.body, frame);
}

}  // namespace tightloop::jinja
