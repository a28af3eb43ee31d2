#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/jinja/jinja_template.h"
#include "tokenizer/jinja/syntax.h"
#include "tokenizer/jinja/values/run.h"

namespace tightloop::jinja {

/// The variables of one call of a function of the template.
struct CallFrame : Changing {
  std::vector<Value> slots;
  std::shared_ptr<CallFrame> outer;
  void clear() override {
    slots.clear();
    outer.reset();
  }
};
using FramePtr = std::shared_ptr<CallFrame>;

/// `loop` inside a loop.
struct LoopBody : CallableBody {
  Value call(Run& run, CallArguments& arguments) override;
  Value attribute(Run& run, std::string_view name) override;
  std::string repr(Run& run) override;
  void clear() override;

  bool advance(Value& item);
  int64_t length(Run& run);

  Value iterable;
  std::function<bool(Value&)> next;
  Value before, current, after;  // missing where there is none
  bool peeked = false;
  int64_t index0 = -1, depth0 = 0, known_length = -1;
  std::vector<Value> changed;
  bool changed_before = false;
  std::function<Value(const Value&, int64_t)> recurse;

 private:
  bool peek();
};

/// Runs a tree. One interpreter renders once.
class Interpreter {
 public:
  /// `record`: the variables from outside; global_functions() are behind them.
  Interpreter(Run& run, const DictBody& record) : run_(run), record_(record) {}

  void render(const SyntaxTree& tree);

  std::string output{};
  std::vector<std::pair<size_t, size_t>> generations{};  // of the output
  std::vector<std::string> generated_texts{};            // of the same
  std::vector<JinjaTemplate::Rendering::Turn> turns{};

 private:
  enum class Flow { kOn, kBreak, kContinue };

  // run_statement.cpp
  Flow execute(const Body& body, const FramePtr& frame);
  Flow execute(const Statement& statement, const FramePtr& frame);
  Flow execute_loop(const Statement& statement, const Value& iterable, const FramePtr& frame, int64_t depth,
                    const FramePtr& outer);
  void execute_for(const Statement& statement, const FramePtr& frame, Flow& flow);
  void note_turn(const Value& item, size_t begin);
  std::function<bool(Value&)> filtered(const Statement& statement, const Value& iterable,
                                       const FramePtr& frame);
  Flow execute_set_block(const Statement& statement, const FramePtr& frame);
  Flow execute_with(const Statement& statement, const FramePtr& frame);
  Flow execute_filter_block(const Statement& statement, const FramePtr& frame);
  void execute_generation(const Statement& statement, const FramePtr& frame);
  void execute_call_block(const Statement& statement, const FramePtr& frame);
  void execute_block(const Statement& statement);
  void write(const Value& value);
  void write(std::string_view text);
  void enter(const ScopeLoads& loads, const FramePtr& frame);
  void leave(const ScopeLoads& loads, const FramePtr& frame);
  Value& slot(const VariableRef& variable, const FramePtr& frame);
  void assign(const Expression& target, const Value& value, const FramePtr& frame, bool exports);
  void check_namespaces(const Expression& target, const FramePtr& frame);
  Value resolve(const std::string& name);
  FramePtr make_frame(const FunctionBody& function, FramePtr outer);

  /// Runs `body` with an empty buffer and returns what it wrote.
  template <class Action>
  std::string captured(Action&& action);

  // call_function.cpp
  friend struct MacroBody;
  Value make_macro(const Statement& statement, const FramePtr& frame);
  std::string call_function(const Statement& statement, const FramePtr& outer, CallArguments& arguments);
  void bind_parameters(const Statement& statement, const FramePtr& frame, CallArguments& arguments);

  // evaluate.cpp
  Value evaluate(const Expression& expression, const FramePtr& frame);
  Value evaluate(const ExpressionPtr& expression, const FramePtr& frame);
  Value evaluate_name(const Expression& expression, const FramePtr& frame);
  Value evaluate_sum(const Expression& expression, const FramePtr& frame);
  Value evaluate_compare(const Expression& expression, const FramePtr& frame);
  Value evaluate_concat(const Expression& expression, const FramePtr& frame);
  Value evaluate_dict(const Expression& expression, const FramePtr& frame);
  Value evaluate_item(const Expression& expression, const FramePtr& frame);
  Value evaluate_call(const Expression& expression, const FramePtr& frame, Value caller = {});
  Value apply_filter(const Expression& expression, const FramePtr& frame, const Value& input);
  Value apply_filters(const Expression* last, const FramePtr& frame, Value text);
  bool apply_test(const Expression& expression, const FramePtr& frame);
  CallArguments arguments_of(const Expression& expression, const FramePtr& frame);
  std::vector<Value> items_of(const Expression& expression, const FramePtr& frame);

  Run& run_;
  const DictBody& record_;
  std::optional<DictBody> globals_;  // once one is asked for
  DictBody exported_;
  std::string* sink_ = &output;
  std::vector<const Shared*> messages_;  // those of the record, which a loop's items may be
  size_t next_message_ = 0;              // the one behind the last turn
};

/// range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
DictBody global_functions(Run& run);

}  // namespace tightloop::jinja
