#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/jinja/values/value.h"

namespace tightloop::jinja {

/// Where a variable is while a template runs: in the frame of the function `up` levels out, at `slot`.
struct VariableRef {
  int up = 0;
  int slot = -1;
};

enum class ExpressionKind : uint8_t {
  kConstant,
  kName,
  kTuple,
  kList,
  kDict,       // operands: key, value, key, value, ...
  kAttribute,  // operands: object; name
  kItem,       // operands: object, index
  kSlice,      // operands: start, stop, step; each may be null
  kCall,       // operands: what is called, then the arguments
  kFilter,     // operands: the input (null in a filter block), then the arguments
  kTest,
  kBinary,  // name is the sign
  kConcat,
  kCompare,  // operands; signs has one between each two
  kAnd,
  kOr,
  kNot,
  kNegative,
  kPositive,
  kInlineIf,         // operands: test, value, otherwise (may be null)
  kNamespaceTarget,  // name.attribute as the target of set
};

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  ExpressionKind kind;
  int line;
  int depth = 1;
  std::string name{};
  std::string attribute{};  // of a namespace target
  Value value{};
  std::vector<ExpressionPtr> operands{};
  std::vector<std::string> signs{};
  std::vector<std::pair<std::string, ExpressionPtr>> keywords{};
  ExpressionPtr star{}, double_star{};  // f(*a, **b)
  VariableRef variable{};               // of a name
};

enum class StatementKind : uint8_t {
  kData,
  kOutput,
  kIf,  // branches
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kGeneration,
  kFilterBlock,
  kWith,
  kBlock,
  kAutoescape,
  kBreak,
  kContinue,
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

/// How a variable of a scope begins when the scope is entered.
struct ScopeLoad {
  enum Source : uint8_t { kParameter, kFromRecord, kFromOuter, kMissing };
  Source source = kMissing;
  VariableRef variable{};
  VariableRef outer{};  // of kFromOuter
  std::string name{};   // of kFromRecord
};
using ScopeLoads = std::vector<ScopeLoad>;

/// A function that a template makes: a macro, the body of a call block, of a recursive loop, or the template.
struct FunctionBody {
  std::string name;
  std::vector<ExpressionPtr> parameters{};  // names
  std::vector<ExpressionPtr> defaults{};    // of the last of them
  bool takes_caller = false, takes_kwargs = false, takes_varargs = false, explicit_caller = false;
  VariableRef caller{}, kwargs{}, varargs{};
  ScopeLoads loads{};
  int slots = 0;
  bool keeps_frame = false;  // functions inside may outlive a call
};

struct Statement {
  StatementKind kind;
  int line;
  std::string text{};                    // of data; the name of a block
  ExpressionPtr expression{};            // output, iterated, set, called, filter
  std::vector<ExpressionPtr> targets{};  // of for, set and with
  std::vector<ExpressionPtr> values{};   // of with
  ExpressionPtr test{};                  // of a loop
  Body body{}, otherwise{};
  std::vector<std::pair<ExpressionPtr, Body>> branches{};
  bool recursive = false, uses_loop = false, exports = false;
  VariableRef variable{};  // a macro's, and a loop's `loop`
  ScopeLoads loads{}, test_loads{}, otherwise_loads{};
  std::vector<ExpressionPtr> test_target{};  // the loop's target in the scope of its test
  std::unique_ptr<FunctionBody> function{};
};

struct SyntaxTree {
  Body body;
  FunctionBody function;
};

}  // namespace tightloop::jinja
