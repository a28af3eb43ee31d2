#include "tokenizer/jinja/filters/filters.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/values/lookup.h"
#include "tokenizer/jinja/values/operators.h"
#include "tokenizer/jinja/values/python_repr.h"

namespace tightloop::jinja {

Value Interpreter::evaluate(const ExpressionPtr& expression, const FramePtr& frame) {
  return expression ? evaluate(*expression, frame) : Value();
}

Value Interpreter::evaluate(const Expression& expression, const FramePtr& frame) {
  const Run::Depth depth(run_);
  run_.step();
  const auto operand = [&](size_t i) { return evaluate(expression.operands[i], frame); };
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return expression.value;
    case ExpressionKind::kName:
      return evaluate_name(expression, frame);
    case ExpressionKind::kTuple:
      return run_.tuple(items_of(expression, frame));
    case ExpressionKind::kList:
      return run_.list(items_of(expression, frame));
    case ExpressionKind::kDict:
      return evaluate_dict(expression, frame);
    case ExpressionKind::kAttribute: {
      const Value object = operand(0);
      run_.line = expression.line;
      return get_attribute(run_, object, expression.name);
    }
    case ExpressionKind::kItem:
      return evaluate_item(expression, frame);
    case ExpressionKind::kSlice:
      run_.line = expression.line;
      fail("a slice stands alone in its brackets");
    case ExpressionKind::kCall:
      return evaluate_call(expression, frame);
    case ExpressionKind::kFilter:
      return apply_filter(expression, frame, operand(0));
    case ExpressionKind::kTest:
      return Value(apply_test(expression, frame));
    case ExpressionKind::kBinary: {
      if (expression.name == "+") return evaluate_sum(expression, frame);
      const Value left = operand(0), right = operand(1);
      run_.line = expression.line;
      return binary(run_, expression.name, left, right);
    }
    case ExpressionKind::kConcat:
      return evaluate_concat(expression, frame);
    case ExpressionKind::kCompare:
      return evaluate_compare(expression, frame);
    case ExpressionKind::kAnd: {
      Value left = operand(0);
      return truth(left) ? operand(1) : left;
    }
    case ExpressionKind::kOr: {
      Value left = operand(0);
      return truth(left) ? left : operand(1);
    }
    case ExpressionKind::kNot:
      return Value(!truth(operand(0)));
    case ExpressionKind::kNegative:
    case ExpressionKind::kPositive: {
      const Value value = operand(0);
      run_.line = expression.line;
      return expression.kind == ExpressionKind::kNegative ? negative(value) : positive(value);
    }
    case ExpressionKind::kInlineIf:
      if (truth(operand(0))) return operand(1);
      if (expression.operands[2]) return operand(2);
      return Value::undefined(fmt::format(
          "the inline if-expression on line {} evaluated to false and no else section was defined",
          expression.line));
    case ExpressionKind::kNamespaceTarget:
      break;
  }
  fail("this cannot be evaluated");
}

Value Interpreter::evaluate_name(const Expression& expression, const FramePtr& frame) {
  const Value& value = slot(expression.variable, frame);
  if (!value.is(ValueKind::kMissing)) return value;
  return Value::undefined(fmt::format("'{}' is undefined", expression.name));
}

std::vector<Value> Interpreter::items_of(const Expression& expression, const FramePtr& frame) {
  std::vector<Value> items;
  for (const auto& item : expression.operands) items.push_back(evaluate(*item, frame));
  run_.line = expression.line;
  return items;
}

Value Interpreter::evaluate_dict(const Expression& expression, const FramePtr& frame) {
  const std::vector<Value> items = items_of(expression, frame);
  DictBody dict;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    run_.step_over(items[i]);
    dict.set(items[i], items[i + 1]);
  }
  return run_.dict(std::move(dict));
}

Value Interpreter::evaluate_item(const Expression& expression, const FramePtr& frame) {
  const Value object = evaluate(expression.operands[0], frame);
  const Expression& index = *expression.operands[1];
  if (index.kind == ExpressionKind::kSlice) {
    const Value start = evaluate(index.operands[0], frame), stop = evaluate(index.operands[1], frame),
                step = evaluate(index.operands[2], frame);
    run_.line = expression.line;
    return get_slice(run_, object, start, stop, step);
  }
  const Value at = evaluate(index, frame);
  run_.line = expression.line;
  return get_item(run_, object, at);
}

Value Interpreter::evaluate_concat(const Expression& expression, const FramePtr& frame) {
  std::string result, made;
  for (const Value& part : items_of(expression, frame)) {
    const auto text = text_view(run_, part, made);
    run_.charge(text.size());
    result += text;
    if (result.size() > run_.limits().value_bytes) fail("the template builds a text that is too long");
  }
  run_.step(result.size() / 64);
  return run_.text(std::move(result));
}

/// a + b + c: texts are put together once, not sum by sum.
Value Interpreter::evaluate_sum(const Expression& expression, const FramePtr& frame) {
  std::vector<const Expression*> sums;  // the last one first
  const Expression* first = &expression;
  for (; first && first->kind == ExpressionKind::kBinary && first->name == "+";
       first = first->operands[0].get())
    sums.push_back(first);
  run_.step(sums.size());
  Value left = first ? evaluate(*first, frame) : Value();
  const auto is_plain = [](const Value& value) { return value.is_text() && !value.as_text().markup; };
  std::string built;  // stands for `left` from the second text on
  size_t length = 0;
  for (size_t i = sums.size(); i-- > 0;) {
    const Value right = evaluate(sums[i]->operands[1], frame);
    run_.line = sums[i]->line;
    if (is_plain(left) && is_plain(right)) {
      if (length == 0) built = left.bytes(), length = left.as_text().length;
      run_.charge(built.size() + right.bytes().size());
      run_.step((built.size() + right.bytes().size()) / 64);
      built += right.bytes();
      length += right.as_text().length;
      continue;
    }
    if (length > 0) left = Value::text_of_length(std::move(built), length), built.clear(), length = 0;
    left = binary(run_, "+", left, right);
  }
  return length > 0 ? Value::text_of_length(std::move(built), length) : left;
}

Value Interpreter::evaluate_compare(const Expression& expression, const FramePtr& frame) {
  Value left = evaluate(expression.operands[0], frame);
  for (size_t i = 0; i < expression.signs.size(); ++i) {
    Value right = evaluate(expression.operands[i + 1], frame);
    run_.line = expression.line;
    if (!compare(run_, expression.signs[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

/// Arguments after the first operand, which is what is called, filtered or tested.
CallArguments Interpreter::arguments_of(const Expression& expression, const FramePtr& frame) {
  CallArguments arguments;
  for (size_t i = 1; i < expression.operands.size(); ++i)
    arguments.positional.push_back(evaluate(*expression.operands[i], frame));
  for (const auto& [name, value] : expression.keywords)
    arguments.keywords.emplace_back(name, evaluate(*value, frame));
  if (expression.star) {
    const Value star = evaluate(*expression.star, frame);
    for (Value& item : run_.items_of(star)) arguments.positional.push_back(std::move(item));
  }
  if (expression.double_star) {
    const Value named = evaluate(*expression.double_star, frame);
    if (!named.is(ValueKind::kDict)) fail("what follows ** must be a dict, not '{}'", type_name(named));
    for (const auto& [key, value] : named.dict().entries) {
      if (!key.is_text()) fail("keywords must be strings");
      for (const auto& [name, other] : arguments.keywords)
        if (name == key.bytes()) fail("got multiple values for keyword argument '{}'", name);
      arguments.keywords.emplace_back(key.bytes(), value);
      run_.step(1 + arguments.keywords.size() / 8);
    }
  }
  run_.line = expression.line;
  return arguments;
}

Value Interpreter::evaluate_call(const Expression& expression, const FramePtr& frame, Value caller) {
  const Value callee = evaluate(expression.operands[0], frame);
  CallArguments arguments = arguments_of(expression, frame);
  if (!caller.is(ValueKind::kMissing)) {
    for (const auto& [name, value] : arguments.keywords)
      if (name == "caller") fail("keyword argument repeated: caller");
    arguments.keywords.emplace_back("caller", std::move(caller));
  }
  Value result = run_.call(callee, arguments);
  run_.line = expression.line;
  return result;
}

Value Interpreter::apply_filter(const Expression& expression, const FramePtr& frame, const Value& input) {
  CallArguments arguments = arguments_of(expression, frame);
  const FilterFunction filter = find_filter(expression.name);
  if (!filter) fail("there is no filter named '{}'", expression.name);
  run_.step_over(input);
  return filter(run_, input, arguments);
}

/// Those of a block: they are inside each other, and the innermost takes the block's text.
Value Interpreter::apply_filters(const Expression* last, const FramePtr& frame, Value text) {
  std::vector<const Expression*> chain;
  for (; last; last = last->operands[0].get()) chain.push_back(last);
  for (size_t i = chain.size(); i-- > 0;) text = apply_filter(*chain[i], frame, text);
  return text;
}

bool Interpreter::apply_test(const Expression& expression, const FramePtr& frame) {
  const Value input = evaluate(*expression.operands[0], frame);
  CallArguments arguments = arguments_of(expression, frame);
  const TestFunction test = find_test(expression.name);
  if (!test) fail("there is no test named '{}'", expression.name);
  run_.step();
  return test(run_, input, arguments);
}

}  // namespace tightloop::jinja
