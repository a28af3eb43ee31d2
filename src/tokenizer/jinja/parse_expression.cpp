#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/jinja/parser.h"

namespace tightloop::jinja {

namespace {

/// Of trees that grow without brackets: a + b + c + ...
constexpr int kLongestChain = 1000;

}  // namespace

ExpressionPtr TemplateParser::checked(ExpressionPtr expression) const {
  int depth = 0;
  const auto look = [&](const ExpressionPtr& part) {
    if (part) depth = std::max(depth, part->depth);
  };
  for (const auto& operand : expression->operands) look(operand);
  for (const auto& [name, value] : expression->keywords) look(value);
  look(expression->star), look(expression->double_star);
  expression->depth = depth + 1;
  if (expression->depth > kLongestChain) refuse("an expression is too long");
  return expression;
}

ExpressionPtr TemplateParser::make(ExpressionKind kind, int line, std::vector<ExpressionPtr> operands) const {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = line;
  made->operands = std::move(operands);
  return checked(std::move(made));
}

namespace {

template <class... Parts>
std::vector<ExpressionPtr> parts_of(Parts... parts) {
  std::vector<ExpressionPtr> list;
  (list.push_back(std::move(parts)), ...);
  return list;
}

bool can_assign(const Expression& target) {
  if (target.kind == ExpressionKind::kTuple) {
    return std::ranges::all_of(target.operands, [](const auto& part) { return can_assign(*part); });
  }
  if (target.kind == ExpressionKind::kNamespaceTarget) return true;
  return target.kind == ExpressionKind::kName;
}

}  // namespace

ExpressionPtr TemplateParser::parse_name_target() {
  const int line = current().line;
  auto target = make(ExpressionKind::kName, line);
  target->name = expect_name();
  // These are constants wherever they are read.
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"})
    if (target->name == constant) refuse(fmt::format("'{}' cannot be set", constant), line);
  return target;
}

ExpressionPtr TemplateParser::parse_target(bool namespaces) {
  auto target = parse_tuple({.simplified = true, .namespaces = namespaces});
  if (!can_assign(*target)) refuse("what is set must be a name, or several", target->line);
  return target;
}

ExpressionPtr TemplateParser::parse_tuple(const TupleRules& rules) {
  const Level level(*this);
  int line = current().line;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect_sign(",");
    if (current().kind == LexKind::kOutputEnd || current().kind == LexKind::kTagEnd || at_sign(")")) break;
    items.push_back(rules.simplified ? parse_primary(rules.namespaces) : parse_expression(rules.conditions));
    if (!at_sign(",")) break;
    is_tuple = true;
    line = current().line;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!rules.parentheses) refuse("an expression was expected");
  }
  return make(ExpressionKind::kTuple, line, std::move(items));
}

ExpressionPtr TemplateParser::parse_expression(bool conditions) {
  const Level level(*this);
  return conditions ? parse_condition() : parse_or();
}

ExpressionPtr TemplateParser::parse_condition() {
  const Level level(*this);
  int line = current().line;
  auto value = parse_or();
  while (skip_name("if")) {
    auto test = parse_or();
    auto otherwise = skip_name("else") ? parse_condition() : nullptr;
    value = make(ExpressionKind::kInlineIf, line,
                 parts_of(std::move(test), std::move(value), std::move(otherwise)));
    line = current().line;
  }
  return value;
}

ExpressionPtr TemplateParser::parse_or() {
  const int line = current().line;
  auto left = parse_and();
  while (skip_name("or")) left = make(ExpressionKind::kOr, line, parts_of(std::move(left), parse_and()));
  return left;
}

ExpressionPtr TemplateParser::parse_and() {
  const int line = current().line;
  auto left = parse_not();
  while (skip_name("and")) left = make(ExpressionKind::kAnd, line, parts_of(std::move(left), parse_not()));
  return left;
}

ExpressionPtr TemplateParser::parse_not() {
  const Level level(*this);
  const int line = current().line;
  if (skip_name("not")) return make(ExpressionKind::kNot, line, parts_of(parse_not()));
  return parse_compare();
}

ExpressionPtr TemplateParser::parse_compare() {
  const int line = current().line;
  std::vector<ExpressionPtr> operands = parts_of(parse_sum());
  std::vector<std::string> signs;
  while (true) {
    std::string sign;
    for (const std::string_view known : {"==", "!=", "<", "<=", ">", ">="})
      if (at_sign(known)) sign = known;
    if (at_name("in")) sign = "in";
    if (at_name("not") && following().kind == LexKind::kName && following().text == "in") {
      sign = "not in";
      take();
    }
    if (sign.empty()) break;
    take();
    signs.push_back(sign);
    operands.push_back(parse_sum());
  }
  if (signs.empty()) return std::move(operands[0]);
  auto compare = make(ExpressionKind::kCompare, line, std::move(operands));
  compare->signs = std::move(signs);
  return compare;
}

ExpressionPtr TemplateParser::parse_sum() {
  auto left = parse_concat();
  while (at_sign("+") || at_sign("-")) {
    const LexToken sign = take();
    left = make(ExpressionKind::kBinary, sign.line, parts_of(std::move(left), parse_concat()));
    left->name = sign.text;
  }
  return left;
}

ExpressionPtr TemplateParser::parse_concat() {
  const int line = current().line;
  std::vector<ExpressionPtr> parts = parts_of(parse_product());
  while (skip_sign("~")) parts.push_back(parse_product());
  return parts.size() == 1 ? std::move(parts[0]) : make(ExpressionKind::kConcat, line, std::move(parts));
}

ExpressionPtr TemplateParser::parse_product() {
  auto left = parse_power();
  while (at_sign("*") || at_sign("/") || at_sign("//") || at_sign("%")) {
    const LexToken sign = take();
    left = make(ExpressionKind::kBinary, sign.line, parts_of(std::move(left), parse_power()));
    left->name = sign.text;
  }
  return left;
}

ExpressionPtr TemplateParser::parse_power() {
  auto left = parse_unary();
  while (at_sign("**")) {  // from the left, unlike Python
    const LexToken sign = take();
    left = make(ExpressionKind::kBinary, sign.line, parts_of(std::move(left), parse_unary()));
    left->name = sign.text;
  }
  return left;
}

ExpressionPtr TemplateParser::parse_unary(bool filters) {
  const Level level(*this);
  const int line = current().line;
  ExpressionPtr node;
  if (skip_sign("-"))
    node = make(ExpressionKind::kNegative, line, parts_of(parse_unary(false)));
  else if (skip_sign("+"))
    node = make(ExpressionKind::kPositive, line, parts_of(parse_unary(false)));
  else
    node = parse_primary();
  node = parse_postfix(std::move(node));
  return filters ? parse_filters(std::move(node)) : std::move(node);
}

ExpressionPtr TemplateParser::parse_primary(bool namespaces) {
  const LexToken token = current();
  auto constant = [&](Value value) {
    auto made = make(ExpressionKind::kConstant, token.line);
    made->value = std::move(value);
    return made;
  };
  if (token.kind == LexKind::kName) {
    take();
    if (token.text == "true" || token.text == "True") return constant(Value(true));
    if (token.text == "false" || token.text == "False") return constant(Value(false));
    for (const std::string_view none : {"none", "None"})
      if (token.text == none) return constant(Value::none());
    const bool in_namespace = namespaces && skip_sign(".");
    auto made = make(in_namespace ? ExpressionKind::kNamespaceTarget : ExpressionKind::kName, token.line);
    made->name = token.text;
    if (in_namespace) made->attribute = expect_name();
    return made;
  }
  if (token.kind == LexKind::kConstant) {
    take();
    if (!token.value.is_text() || current().kind != LexKind::kConstant || !current().value.is_text())
      return constant(token.value);
    std::string text = token.value.bytes();
    while (current().kind == LexKind::kConstant && current().value.is_text()) text += take().value.bytes();
    return constant(Value::text(std::move(text)));
  }
  if (skip_sign("(")) {
    auto tuple = parse_tuple({.parentheses = true});
    expect_sign(")");
    return tuple;
  }
  if (at_sign("[")) return parse_list();
  if (at_sign("{")) return parse_dict();
  refuse(token.kind == LexKind::kEnd      ? "the template ends within an expression"
         : token.kind == LexKind::kSign   ? fmt::format("unexpected '{}'", token.text)
         : token.kind == LexKind::kTagEnd ? "the tag ends where an expression was expected"
                                          : "an expression was expected");
}

ExpressionPtr TemplateParser::parse_list() {
  const int line = take().line;
  std::vector<ExpressionPtr> items;
  while (!at_sign("]")) {
    if (!items.empty()) expect_sign(",");
    if (at_sign("]")) break;
    items.push_back(parse_expression());
  }
  take();
  return make(ExpressionKind::kList, line, std::move(items));
}

ExpressionPtr TemplateParser::parse_dict() {
  const int line = take().line;
  std::vector<ExpressionPtr> items;
  while (!at_sign("}")) {
    if (!items.empty()) expect_sign(",");
    if (at_sign("}")) break;
    items.push_back(parse_expression());
    expect_sign(":");
    items.push_back(parse_expression());
  }
  take();
  return make(ExpressionKind::kDict, line, std::move(items));
}

ExpressionPtr TemplateParser::parse_postfix(ExpressionPtr node) {
  while (true) {
    if (at_sign(".") || at_sign("["))
      node = parse_subscript(std::move(node));
    else if (at_sign("("))
      node = parse_call(std::move(node));
    else
      return node;
  }
}

ExpressionPtr TemplateParser::parse_filters(ExpressionPtr node) {
  while (true) {
    if (at_sign("|"))
      node = parse_filter(std::move(node), false);
    else if (at_name("is"))
      node = parse_test(std::move(node));
    else if (at_sign("("))
      node = parse_call(std::move(node));
    else
      return node;
  }
}

ExpressionPtr TemplateParser::parse_subscript(ExpressionPtr node) {
  const LexToken sign = take();
  if (sign.text == ".") {
    const LexToken token = take();
    if (token.kind == LexKind::kName) {
      auto made = make(ExpressionKind::kAttribute, sign.line, parts_of(std::move(node)));
      made->name = token.text;
      return made;
    }
    if (token.kind != LexKind::kConstant || !token.value.is(ValueKind::kInteger))
      refuse("a name or a number was expected after '.'", token.line);
    auto index = make(ExpressionKind::kConstant, token.line);
    index->value = token.value;
    return make(ExpressionKind::kItem, sign.line, parts_of(std::move(node), std::move(index)));
  }
  std::vector<ExpressionPtr> indices;
  while (!at_sign("]")) {
    if (!indices.empty()) expect_sign(",");
    indices.push_back(parse_subscribed());
  }
  take();
  auto index = indices.size() == 1 ? std::move(indices[0])
                                   : make(ExpressionKind::kTuple, sign.line, std::move(indices));
  return make(ExpressionKind::kItem, sign.line, parts_of(std::move(node), std::move(index)));
}

ExpressionPtr TemplateParser::parse_subscribed() {
  const int line = current().line;
  ExpressionPtr start, stop, step;
  if (!at_sign(":")) start = parse_expression();
  if (!at_sign(":")) return start;
  take();
  const auto at_end = [&] { return at_sign(":") || at_sign("]") || at_sign(","); };
  if (!at_end()) stop = parse_expression();
  if (skip_sign(":") && !at_sign("]") && !at_sign(",")) step = parse_expression();
  return make(ExpressionKind::kSlice, line, parts_of(std::move(start), std::move(stop), std::move(step)));
}

void TemplateParser::parse_arguments(Expression& call) {
  const int line = current().line;
  expect_sign("(");
  const auto ensure = [&](bool holds) {
    if (!holds) refuse("the arguments of a call are in the wrong order", line);
  };
  for (bool first = true; !at_sign(")"); first = false) {
    if (!first) {
      expect_sign(",");
      if (at_sign(")")) break;
    }
    if (skip_sign("*")) {
      ensure(!call.star && !call.double_star);
      call.star = parse_expression();
    } else if (skip_sign("**")) {
      ensure(!call.double_star);
      call.double_star = parse_expression();
    } else if (current().kind == LexKind::kName && following().kind == LexKind::kSign &&
               following().text == "=") {
      ensure(!call.double_star);
      std::string name = take().text;
      take();
      for (const auto& [other, value] : call.keywords)
        if (other == name) refuse(fmt::format("the argument '{}' is given twice", name), line);
      call.keywords.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(!call.star && !call.double_star && call.keywords.empty());
      call.operands.push_back(parse_expression());
    }
  }
  take();
}

ExpressionPtr TemplateParser::parse_call(ExpressionPtr node) {
  auto call = make(ExpressionKind::kCall, current().line, parts_of(std::move(node)));
  parse_arguments(*call);
  return checked(std::move(call));
}

std::string TemplateParser::parse_dotted_name() {
  std::string name = expect_name();
  while (skip_sign(".")) name += "." + expect_name();
  return name;
}

ExpressionPtr TemplateParser::parse_filter(ExpressionPtr node, bool inline_start) {
  while (at_sign("|") || inline_start) {
    if (!inline_start) take();
    inline_start = false;
    const int line = current().line;
    std::string name = parse_dotted_name();
    node = make(ExpressionKind::kFilter, line, parts_of(std::move(node)));
    node->name = std::move(name);
    if (at_sign("(")) parse_arguments(*node);
    node = checked(std::move(node));
  }
  return node;
}

ExpressionPtr TemplateParser::parse_test(ExpressionPtr node) {
  const Level level(*this);
  const int line = take().line;
  const bool negated = skip_name("not");
  auto test = make(ExpressionKind::kTest, line, parts_of(std::move(node)));
  test->name = parse_dotted_name();
  const bool has_argument =
      (current().kind == LexKind::kName && !at_name("else") && !at_name("or") && !at_name("and")) ||
      current().kind == LexKind::kConstant || at_sign("[") || at_sign("{");
  if (at_sign("(")) {
    parse_arguments(*test);
  } else if (has_argument) {
    if (at_name("is")) refuse("tests cannot follow each other: join them with 'and'");
    test->operands.push_back(parse_postfix(parse_primary()));
  }
  test = checked(std::move(test));
  return negated ? make(ExpressionKind::kNot, line, parts_of(std::move(test))) : std::move(test);
}

}  // namespace tightloop::jinja
