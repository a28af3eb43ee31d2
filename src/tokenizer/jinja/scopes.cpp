#include "tokenizer/jinja/scopes.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>

#include "tokenizer/jinja/filters/filters.h"
#include "tokenizer/jinja/lexer.h"
#include "tokenizer/jinja/name_walk.h"

namespace tightloop::jinja {

namespace {

/// A variable's place, seen from nowhere: which function, which slot.
struct Place {
  int function = 0;  // how many functions are around it
  int slot = 0;
};

/// The names of one scope.
class ScopeNames {
 public:
  ScopeNames(const ScopeNames* parent, FunctionBody* function, int level)
      : parent_(parent),
        function_(function),
        level_(level),
        slots_(std::make_shared<std::map<std::string, int>>()) {}

  std::optional<Place> find(const std::string& name) const {
    if (const auto found = places_.find(name); found != places_.end()) return found->second;
    return parent_ ? parent_->find(name) : std::nullopt;
  }
  int level() const { return level_; }
  FunctionBody* function() const { return function_; }

  void read(const std::string& name) {
    if (!find(name)) define(name, {.source = ScopeLoad::kFromRecord, .name = name});
  }
  void store(const std::string& name) {
    stored_.insert(name);
    if (places_.contains(name)) return;
    if (const auto outer = parent_ ? parent_->find(name) : std::nullopt)
      define(name, {.source = ScopeLoad::kFromOuter, .outer = seen(*outer)});
    else
      define(name, {.source = ScopeLoad::kMissing});
  }
  void declare(const std::string& name) {
    stored_.insert(name);
    define(name, {.source = ScopeLoad::kParameter});
  }

  /// What is set in some branches alone begins as it is outside.
  void merge(const std::vector<ScopeNames>& branches) {
    std::set<std::string> stored;
    for (const ScopeNames& branch : branches)
      for (const std::string& name : branch.stored_)
        if (!stored_.contains(name)) stored.insert(name);
    for (const ScopeNames& branch : branches) {
      for (const auto& [name, place] : branch.places_) places_[name] = place;
      for (const auto& [name, load] : branch.loads_) loads_[name] = load;
      stored_.insert(branch.stored_.begin(), branch.stored_.end());
    }
    for (const std::string& name : stored) {
      if (const auto outer = parent_ ? parent_->find(name) : std::nullopt)
        define(name, {.source = ScopeLoad::kFromOuter, .outer = seen(*outer)});
      else
        define(name, {.source = ScopeLoad::kFromRecord, .name = name});
    }
  }

  VariableRef reference(const std::string& name) const {
    const auto place = find(name);
    return place ? seen(*place) : VariableRef{};
  }
  ScopeLoads loads() const {
    ScopeLoads list;
    for (const auto& [name, load] : loads_) list.push_back(load);
    return list;
  }

 private:
  VariableRef seen(const Place& place) const { return {level_ - place.function, place.slot}; }
  void define(const std::string& name, ScopeLoad load) {
    const auto [slot, added] = slots_->try_emplace(name, function_->slots);
    if (added) ++function_->slots;
    places_[name] = {level_, slot->second};
    load.variable = {0, slot->second};
    loads_[name] = std::move(load);
  }

  const ScopeNames* parent_;
  FunctionBody* function_;
  int level_;
  std::shared_ptr<std::map<std::string, int>> slots_;  // shared by the branches of an if
  std::map<std::string, Place> places_;
  std::map<std::string, ScopeLoad> loads_;
  std::set<std::string> stored_;
};

/// Finds what a scope's own statements read and set; it does not go into scopes inside.
class NameFinder {
 public:
  explicit NameFinder(ScopeNames& names) : names_(&names) {}

  void visit(const Body& body) {
    for (const auto& statement : body) visit(*statement);
  }
  void visit(const Expression& expression) {
    each_part(expression, [this](const Expression& part) { names_->read(part.name); });
  }
  void visit(const ExpressionPtr& expression) {
    if (expression) visit(*expression);
  }
  void target(const Expression& target, bool parameter) {
    each_part(target, [&](const Expression& part) {
      if (part.kind == ExpressionKind::kNamespaceTarget)
        names_->read(part.name);
      else if (parameter)
        names_->declare(part.name);
      else
        names_->store(part.name);
    });
  }

 private:
  void visit(const Statement& statement) {
    switch (statement.kind) {
      case StatementKind::kIf:
        return visit_if(statement);
      case StatementKind::kSet:
        visit(statement.expression);
        return target(*statement.targets[0], false);
      case StatementKind::kSetBlock:
      case StatementKind::kMacro:
        return target(*statement.targets[0], false);
      case StatementKind::kWith:
        for (const auto& value : statement.values) visit(value);
        return;
      case StatementKind::kOutput:
      case StatementKind::kFor:
      case StatementKind::kCallBlock:
      case StatementKind::kFilterBlock:
        return visit(statement.expression);
      default:
        return;
    }
  }
  void visit_if(const Statement& statement) {
    visit(statement.branches[0].first);
    std::vector<ScopeNames> branches(3, *names_);
    ScopeNames* own = names_;
    names_ = &branches[0];
    visit(statement.branches[0].second);
    names_ = &branches[1];  // jinja2 holds the elifs for ifs that follow each other
    for (size_t i = 1; i < statement.branches.size(); ++i) {
      visit(statement.branches[i].first);
      std::vector<ScopeNames> inner(3, *names_);
      ScopeNames* outer = names_;
      names_ = &inner[0];
      visit(statement.branches[i].second);
      names_ = outer;
      names_->merge(inner);
    }
    names_ = &branches[2];
    visit(statement.otherwise);
    names_ = own;
    names_->merge(branches);
  }

  ScopeNames* names_;
};

class Resolver {
 public:
  explicit Resolver(SyntaxTree& tree) : tree_(tree) {}

  void resolve() {
    has_blocks_ = any_block(tree_.body);
    ScopeNames root(nullptr, &tree_.function, 0);
    NameFinder(root).visit(tree_.body);
    Context context{&root, true, false, false};
    resolve(tree_.body, context);
    tree_.function.loads = root.loads();
  }

 private:
  struct Context {
    ScopeNames* names;
    bool top_level;  // what is set here is seen by blocks
    bool soft;       // in an if, where an unknown filter is an error only when it is used
    bool in_loop;    // of the same function: break and continue
    Context inner(ScopeNames& scope, bool loop) const { return {&scope, false, false, loop}; }
  };

  static bool any_block(const Body& body) {
    for (const auto& statement : body) {
      if (statement->kind == StatementKind::kBlock || any_block(statement->body) ||
          any_block(statement->otherwise))
        return true;
      for (const auto& branch : statement->branches)
        if (any_block(branch.second)) return true;
    }
    return false;
  }

  void resolve(Body& body, const Context& context) {
    for (auto& statement : body) resolve(*statement, context);
  }

  void resolve(ExpressionPtr& expression, const Context& context) {
    if (!expression) return;
    Expression& node = *expression;
    switch (node.kind) {
      case ExpressionKind::kName:
      case ExpressionKind::kNamespaceTarget:
        node.variable = context.names->reference(node.name);
        break;
      case ExpressionKind::kFilter:
        if (!find_filter(node.name) && !context.soft)
          throw SyntaxFault{node.line, fmt::format("there is no filter named '{}'", node.name)};
        break;
      case ExpressionKind::kTest:
        if (!find_test(node.name) && !context.soft)
          throw SyntaxFault{node.line, fmt::format("there is no test named '{}'", node.name)};
        break;
      default:
        break;
    }
    Context inside = context;
    inside.soft |= node.kind == ExpressionKind::kInlineIf;
    for (auto& operand : node.operands) resolve(operand, inside);
    for (auto& [name, value] : node.keywords) resolve(value, inside);
    resolve(node.star, inside);
    resolve(node.double_star, inside);
  }

  void set_target(ExpressionPtr& target, const Context& context) {
    each_part(*target, [&](const Expression& part) {
      if (part.kind == ExpressionKind::kName && part.name == "loop" && loops_ > 0)
        throw SyntaxFault{part.line, "'loop' cannot be set inside a loop"};
    });
    resolve(target, context);
  }

  void resolve(Statement& statement, const Context& context) {
    switch (statement.kind) {
      case StatementKind::kData:
        return;
      case StatementKind::kBreak:
      case StatementKind::kContinue:
        if (!context.in_loop) throw SyntaxFault{statement.line, "break and continue belong into a loop"};
        return;
      case StatementKind::kOutput:
        return resolve(statement.expression, context);
      case StatementKind::kIf: {
        Context inside = context;
        inside.soft = true;
        for (auto& [test, body] : statement.branches) resolve(test, inside), resolve(body, inside);
        return resolve(statement.otherwise, inside);
      }
      case StatementKind::kFor:
        return resolve_for(statement, context);
      case StatementKind::kSet:
        resolve(statement.expression, context);
        statement.exports = context.top_level && has_blocks_;
        return set_target(statement.targets[0], context);
      case StatementKind::kMacro:
        statement.exports = context.top_level && has_blocks_;
        resolve_function(statement, context);
        return resolve(statement.targets[0], context);
      case StatementKind::kCallBlock:
        resolve_function(statement, context);
        return resolve(statement.expression, context);
      case StatementKind::kGeneration:
        return resolve_function(statement, context);
      case StatementKind::kBlock:
        return resolve_block(statement);
      default:
        return resolve_scope(statement, context);
    }
  }

  /// with, filter and autoescape blocks, and set with a body.
  void resolve_scope(Statement& statement, const Context& context) {
    ScopeNames scope(context.names, context.names->function(), context.names->level());
    NameFinder finder(scope);
    if (statement.kind == StatementKind::kWith)
      for (const auto& target : statement.targets) finder.target(*target, true);
    finder.visit(statement.body);
    if (statement.kind != StatementKind::kWith) finder.visit(statement.expression);
    const Context inside = context.inner(scope, context.in_loop);
    if (statement.kind == StatementKind::kWith) {
      for (auto& value : statement.values) resolve(value, context);
      for (auto& target : statement.targets) resolve(target, inside);
    } else {
      resolve(statement.expression, inside);
      for (auto& target : statement.targets) set_target(target, context);
    }
    statement.exports = statement.kind == StatementKind::kSetBlock && context.top_level && has_blocks_;
    resolve(statement.body, inside);
    statement.loads = scope.loads();
  }

  void resolve_for(Statement& statement, const Context& context) {
    statement.uses_loop = statement.recursive || names_in(statement.body).contains("loop");
    resolve(statement.expression, context);
    ++loops_;
    if (statement.test) {
      statement.test_target.push_back(copy_target(*statement.targets[0]));
      ScopeNames scope(context.names, context.names->function(), context.names->level());
      NameFinder finder(scope);
      finder.target(*statement.targets[0], true);
      finder.visit(statement.test);
      const Context inside = context.inner(scope, false);
      resolve(statement.test, inside);
      resolve(statement.test_target[0], inside);
      statement.test_loads = scope.loads();
    }
    Context around = context;
    ScopeNames outer_of_function(context.names, context.names->function(), context.names->level());
    if (statement.recursive) {
      statement.function = std::make_unique<FunctionBody>();
      context.names->function()->keeps_frame = true;
      outer_of_function = ScopeNames(context.names, statement.function.get(), context.names->level() + 1);
      around.names = &outer_of_function;
      around.in_loop = false;
    }
    ScopeNames scope(around.names, around.names->function(), around.names->level());
    if (statement.uses_loop) scope.declare("loop");
    NameFinder finder(scope);
    finder.target(*statement.targets[0], true);
    finder.visit(statement.body);
    const Context inside = around.inner(scope, true);
    set_target(statement.targets[0], inside);
    resolve(statement.body, inside);
    statement.variable = scope.reference("loop");
    statement.loads = scope.loads();
    ScopeNames otherwise(around.names, around.names->function(), around.names->level());
    NameFinder(otherwise).visit(statement.otherwise);
    resolve(statement.otherwise, around.inner(otherwise, around.in_loop));
    statement.otherwise_loads = otherwise.loads();
    --loops_;
  }

  void resolve_function(Statement& statement, const Context& context) {
    FunctionBody& function = *statement.function;
    if (statement.kind != StatementKind::kGeneration) context.names->function()->keeps_frame = true;
    ScopeNames scope(context.names, &function, context.names->level() + 1);
    NameFinder finder(scope);
    for (size_t i = 0; i < function.parameters.size(); ++i) {
      const std::string& name = function.parameters[i]->name;
      for (size_t other = 0; other < i; ++other)
        if (function.parameters[other]->name == name)
          throw SyntaxFault{statement.line, fmt::format("the parameter '{}' is there twice", name)};
      finder.target(*function.parameters[i], true);
      function.explicit_caller |= name == "caller";
    }
    const auto has_parameter = [&](const std::string& name) {
      for (const auto& parameter : function.parameters)
        if (parameter->name == name) return true;
      return false;
    };
    const auto used = names_in(statement.body);
    function.takes_caller = used.contains("caller");
    if (function.takes_caller && function.explicit_caller) {
      const size_t without = function.parameters.size() - function.defaults.size();
      for (size_t i = 0; i < without; ++i)
        if (function.parameters[i]->name == "caller")
          throw SyntaxFault{statement.line, "the parameter 'caller' needs a default"};
    }
    function.takes_kwargs = used.contains("kwargs") && !has_parameter("kwargs");
    function.takes_varargs = used.contains("varargs") && !has_parameter("varargs");
    if (function.takes_caller && !function.explicit_caller) scope.declare("caller");
    if (function.takes_kwargs) scope.declare("kwargs");
    if (function.takes_varargs) scope.declare("varargs");
    for (const auto& value : function.defaults) finder.visit(value);
    finder.visit(statement.body);
    const Context inside = context.inner(scope, false);
    for (auto& parameter : function.parameters) resolve(parameter, inside);
    for (auto& value : function.defaults) resolve(value, inside);
    resolve(statement.body, inside);
    if (function.takes_caller) function.caller = scope.reference("caller");
    if (function.takes_kwargs) function.kwargs = scope.reference("kwargs");
    if (function.takes_varargs) function.varargs = scope.reference("varargs");
    function.loads = scope.loads();
  }

  void resolve_block(Statement& statement) {
    if (!blocks_.insert(statement.text).second)
      throw SyntaxFault{statement.line, fmt::format("the block '{}' is there twice", statement.text)};
    ScopeNames scope(nullptr, statement.function.get(), 0);
    NameFinder(scope).visit(statement.body);
    resolve(statement.body, Context{&scope, false, false, false});
    statement.function->loads = scope.loads();
  }

  SyntaxTree& tree_;
  bool has_blocks_ = false;
  int loops_ = 0;
  std::set<std::string> blocks_;
};

}  // namespace

void resolve_names(SyntaxTree& tree) { Resolver(tree).resolve(); }

}  // namespace tightloop::jinja
