#pragma once

#include <set>
#include <string>

#include "tokenizer/jinja/syntax.h"

namespace tightloop::jinja {

/// Calls `visit` for every name in an expression.
template <class Visit>
void each_part(const Expression& expression, const Visit& visit) {
  if (expression.kind == ExpressionKind::kName || expression.kind == ExpressionKind::kNamespaceTarget)
    visit(expression);
  for (const auto& operand : expression.operands)
    if (operand) each_part(*operand, visit);
  for (const auto& keyword : expression.keywords) each_part(*keyword.second, visit);
  if (expression.star) each_part(*expression.star, visit);
  if (expression.double_star) each_part(*expression.double_star, visit);
}

/// Which of the special names (loop, caller, kwargs, varargs) are read in a body before they are set there.
std::set<std::string> names_in(const Body& body);

/// The target of a loop once more: its test has variables of its own.
ExpressionPtr copy_target(const Expression& target);

}  // namespace tightloop::jinja
