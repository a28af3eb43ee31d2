#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tightloop::jinja {

enum class ValueKind : uint8_t {
  kMissing,  // a variable that was never set; templates see an undefined in its place
  kUndefined,
  kNone,
  kBoolean,
  kInteger,
  kFloat,
  kText,
  kList,
  kTuple,
  kDict,
  kView,  // dict.keys(), dict.values(), dict.items()
  kRange,
  kIterator,  // what can be gone through once
  kNamespace,
  kLoop,
  kCallable,
};

/// What a value points to. Lists and texts never change once they are built, so copies share them.
struct Shared {
  virtual ~Shared() = default;
  int depth = 0;        // of what it holds
  uint64_t weight = 0;  // its bytes and those of all that it holds, what is shared as often as it is there
};

struct TextBody;
struct ListBody;
struct DictBody;
struct UndefinedBody;

/// A Python value as templates know them.
class Value {
 public:
  Value() = default;  // missing
  explicit Value(bool value) : kind_(ValueKind::kBoolean), integer_(value) {}
  explicit Value(int64_t value) : kind_(ValueKind::kInteger), integer_(value) {}
  explicit Value(double value) : kind_(ValueKind::kFloat), float_(value) {}
  Value(ValueKind kind, std::shared_ptr<Shared> body) : kind_(kind), body_(std::move(body)) {}
  static Value none() { return Value(ValueKind::kNone, nullptr); }
  static Value text(std::string text, bool markup = false);
  /// The same of a text whose code points are known.
  static Value text_of_length(std::string text, size_t length);
  static Value undefined(std::string why);

  ValueKind kind() const { return kind_; }
  bool is(ValueKind kind) const { return kind_ == kind; }
  bool is_text() const { return kind_ == ValueKind::kText; }
  bool is_undefined() const { return kind_ == ValueKind::kUndefined; }
  bool is_none() const { return kind_ == ValueKind::kNone; }
  /// Python's bool is an int.
  bool is_integer() const { return kind_ == ValueKind::kInteger || kind_ == ValueKind::kBoolean; }
  bool is_number() const { return is_integer() || kind_ == ValueKind::kFloat; }
  bool is_list_or_tuple() const { return kind_ == ValueKind::kList || kind_ == ValueKind::kTuple; }

  int64_t integer() const { return integer_; }
  /// Of an integer too.
  double number() const { return is_integer() ? static_cast<double>(integer_) : float_; }
  const std::string& bytes() const;
  const TextBody& as_text() const;
  const std::vector<Value>& items() const;  // of lists, tuples and views
  const DictBody& dict() const;
  const std::string& why_undefined() const;

  template <class Body>
  Body& as() const {
    return static_cast<Body&>(*body_);
  }
  const std::shared_ptr<Shared>& body() const { return body_; }
  int depth() const { return body_ ? body_->depth : 0; }
  uint64_t weight() const { return sizeof(Value) + (body_ ? body_->weight : 0); }

 private:
  ValueKind kind_ = ValueKind::kMissing;
  union {
    int64_t integer_ = 0;
    double float_;
  };
  std::shared_ptr<Shared> body_;
};

struct TextBody : Shared {
  TextBody(std::string text, bool markup);
  TextBody(std::string text, size_t code_points);
  std::string bytes;  // UTF-8
  size_t length;      // in code points
  bool markup;        // escaped HTML: what is added to it is escaped
  bool is_ascii() const { return length == bytes.size(); }
};

struct ListBody : Shared {
  std::vector<Value> items;
  const char* view = "";  // of a view: the name of its type
  bool group = false;     // of a tuple: one that groupby made, with .grouper and .list
};

struct UndefinedBody : Shared {
  std::string why;
};

/// Python's dict: in the order of insertion; 1, 1.0 and True are one key.
struct DictBody : Shared {
  std::vector<std::pair<Value, Value>> entries;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);
  void set(std::string_view key, Value value) { set(Value::text(std::string(key)), std::move(value)); }

 private:
  const Value* find(const Value& key, size_t hash) const;
  std::unordered_multimap<size_t, size_t> places_;  // by hash, once there are more than a few
};

struct RangeBody : Shared {
  int64_t start = 0, step = 1, count = 0, stop = 0;
};

/// Gives one item after the other; false at the end.
struct IteratorBody : Shared {
  std::function<bool(Value&)> next;
  bool reversed = false;  // Python has a type of its own for what reversed() gives
};

/// What can change, and so may come to hold itself: the interpreter owns these and clears them at its end.
struct Changing : Shared, std::enable_shared_from_this<Changing> {
  virtual void clear() = 0;
};

struct NamespaceBody : Changing {
  DictBody attributes;
  void clear() override { attributes = {}; }
};

/// Where Python would raise an exception. The interpreter adds the template's line.
struct TemplateFault {
  std::string what;
};

/// raise_exception() of a template, with its words.
struct RaisedByTemplate {
  std::string message;
};

bool truth(const Value& value);
/// Python's ==. Values nest no deeper than the limits say, so this may recurse.
bool equal(const Value& left, const Value& right);
/// Python's <, where both have an order; a fault where they have none.
bool less(const Value& left, const Value& right, const char* sign = "<");
/// What a dict finds keys by; a fault for what cannot be a key.
size_t hash_of(const Value& value);
/// "str", "int", ...: Python's name of the type.
std::string type_name(const Value& value);

}  // namespace tightloop::jinja
