#pragma once

#include <algorithm>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja/values/fault.h"
#include "tokenizer/jinja/values/limits.h"
#include "tokenizer/jinja/values/value.h"

namespace tightloop::jinja {

/// What a call is given.
struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;
};

class Run;

/// What can be called: macros, methods, functions.
struct CallableBody : Changing {
  virtual Value call(Run& run, CallArguments& arguments) = 0;
  /// What `x.name` is; missing where there is no such attribute.
  virtual Value attribute(Run&, std::string_view) { return {}; }
  virtual std::string repr(Run&) { return "<function>"; }
  void clear() override {}
};

/// One rendering: what it may still use, and what its values need.
class Run {
 public:
  Run(const JinjaLimits& limits, std::time_t now) : limits_(limits), now_(now) {}
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Counts work; a fault at the limit.
  void step(uint64_t count = 1) {
    if ((steps_ += count) > limits_.steps)
      fail("the template takes too many steps (more than {})", limits_.steps);
  }
  /// Work that goes through a text, or a tuple that is a key. What goes through a list counts its items.
  void step_over(const Value& value) {
    step(value.is_text() || value.is(ValueKind::kTuple) ? 1 + value.weight() / 64 : 1);
  }
  /// The work of comparing two values.
  void step_over(const Value& left, const Value& right) {
    step(1 + std::min(left.weight(), right.weight()) / 64);
  }
  /// To be called before something of this size is built.
  void charge(uint64_t bytes);

  Value text(std::string text, bool markup = false);
  Value list(std::vector<Value> items) { return sequence(ValueKind::kList, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(ValueKind::kTuple, std::move(items)); }
  Value view(const char* type, std::vector<Value> items);
  Value dict(DictBody dict);
  Value range(int64_t start, int64_t stop, int64_t step);
  /// `of`: what the items are made from.
  Value iterator(std::function<bool(Value&)> next, const Value& of);
  template <class Body>
  Value callable(std::shared_ptr<Body> body) {
    return Value(ValueKind::kCallable, adopt(std::move(body)));
  }
  Value function(std::string name, std::function<Value(Run&, CallArguments&)> body, const Value& of = {});
  /// Something that may come to hold itself.
  template <class Body>
  std::shared_ptr<Body> adopt(std::shared_ptr<Body> body) {
    keep(body);
    return body;
  }

  /// Goes through a value as Python's iter(): a fault where it cannot.
  std::function<bool(Value&)> iterate(const Value& value);
  std::vector<Value> items_of(const Value& value);

  Value call(const Value& callee, CallArguments& arguments);

  const JinjaLimits& limits() const { return limits_; }
  std::time_t now() const { return now_; }

  /// Counts what waits for each other.
  class Depth {
   public:
    explicit Depth(Run& run) : run_(run) {
      if (++run_.depth_ > run_.limits_.depth) {
        --run_.depth_;
        fail("the template calls itself too deeply");
      }
    }
    ~Depth() { --run_.depth_; }
    Depth(const Depth&) = delete;

   private:
    Run& run_;
  };

  int line = 0;  // of the template: what errors name

 private:
  Value sequence(ValueKind kind, std::vector<Value> items);
  void hold(Shared& body, const Value& item);
  void check(const Shared& body) const;
  void keep(std::shared_ptr<Changing> body);

  const JinjaLimits limits_;
  const std::time_t now_;
  uint64_t steps_ = 0, built_ = 0;
  int depth_ = 0;
  std::vector<std::shared_ptr<Changing>> changing_;
  size_t next_sweep_ = 1024;
};

/// Arguments by parameters' names, as Python binds them: what was not given is missing. A fault where one is
/// not known, given twice, too many, or one of the first `required` is not there.
std::vector<Value> bind(std::string_view function, CallArguments& arguments,
                        std::initializer_list<std::string_view> names, size_t required = 0);

/// An integer, or a fault: "'str' object cannot be interpreted as an integer".
int64_t to_integer(const Value& value);

}  // namespace tightloop::jinja
