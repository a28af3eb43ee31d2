#include "tokenizer/jinja/name_walk.h"

namespace tightloop::jinja {

namespace {

/// Goes through statements in the order of jinja2's syntax tree, where targets come before values.
class SpecialNames {
 public:
  void visit(const Body& body) {
    for (const auto& statement : body) visit(*statement);
  }
  std::set<std::string> read{};

 private:
  void reads(const ExpressionPtr& expression) {
    if (!expression) return;
    each_part(*expression, [this](const Expression& part) {
      if (watched_.contains(part.name)) read.insert(part.name);
    });
  }
  void sets(const std::vector<ExpressionPtr>& targets) {
    for (const auto& target : targets)
      each_part(*target, [this](const Expression& part) {
        if (part.kind == ExpressionKind::kName) watched_.erase(part.name);
      });
  }
  void visit(const Statement& statement) {
    if (statement.kind == StatementKind::kBlock) return;
    if (statement.kind != StatementKind::kMacro) sets(statement.targets);  // a macro's name is no such name
    for (const auto& [test, body] : statement.branches) reads(test), visit(body);
    reads(statement.expression);
    for (const auto& value : statement.values) reads(value);
    if (statement.function) {
      sets(statement.function->parameters);
      for (const auto& value : statement.function->defaults) reads(value);
    }
    visit(statement.body);
    visit(statement.otherwise);
    reads(statement.test);
  }

  std::set<std::string> watched_{"loop", "caller", "kwargs", "varargs"};
};

}  // namespace

std::set<std::string> names_in(const Body& body) {
  SpecialNames names;
  names.visit(body);
  return std::move(names.read);
}

ExpressionPtr copy_target(const Expression& target) {
  auto copy = std::make_unique<Expression>();
  copy->kind = target.kind;
  copy->line = target.line;
  copy->depth = target.depth;
  copy->name = target.name;
  for (const auto& part : target.operands) copy->operands.push_back(copy_target(*part));
  return copy;
}

}  // namespace tightloop::jinja
