#include "tokenizer/jinja/jinja_template.h"

#include <simdjson.h>

#include "core/error.h"
#include "core/io/json_depth.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/lexer.h"
#include "tokenizer/jinja/parser.h"
#include "tokenizer/jinja/scopes.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop {

using jinja::DictBody;
using jinja::Run;
using jinja::Value;

namespace {

/// Values of a record. The JSON is no deeper than shallow_json() lets through.
Value value_of(Run& run, simdjson::dom::element element) {
  using simdjson::dom::element_type;
  switch (element.type()) {
    case element_type::NULL_VALUE:
      return Value::none();
    case element_type::BOOL:
      return Value(element.get_bool().value_unsafe());
    case element_type::INT64:
      return Value(int64_t{element.get_int64().value_unsafe()});
    case element_type::UINT64:
      jinja::fail("it holds a whole number that does not fit into 64 bits with a sign");
    case element_type::DOUBLE:
      return Value(element.get_double().value_unsafe());
    case element_type::STRING:
      return run.text(std::string(element.get_string().value_unsafe()));
    case element_type::ARRAY: {
      std::vector<Value> items;
      const simdjson::dom::array array = element.get_array().value_unsafe();
      for (const auto item : array) items.push_back(value_of(run, item));
      return run.list(std::move(items));
    }
    case element_type::OBJECT: {
      DictBody dict;
      const simdjson::dom::object object = element.get_object().value_unsafe();
      for (const auto [key, value] : object) dict.set(key, value_of(run, value));
      return run.dict(std::move(dict));
    }
  }
  return Value::none();
}

jinja::JinjaLimits limits_of_records() {
  jinja::JinjaLimits limits;
  limits.value_depth = 300;  // the depth of JSON is limited already
  limits.value_bytes = limits.built_bytes = UINT64_MAX / 2;
  return limits;
}

/// Values of JSON texts. Data errors name their source.
class JsonValues {
 public:
  explicit JsonValues(std::string source) : source_(std::move(source)), run_(limits_of_records(), 0) {}

  Run& run() { return run_; }
  Value value(std::string_view json) {
    try {
      return value_of(run_, parse(json));
    } catch (const jinja::TemplateFault& fault) {
      throw data_error("{}: {}.", source_, fault.what);
    }
  }
  DictBody fields(std::string_view json) {
    if (!parse(json).is_object()) throw data_error("{} is not a JSON object with 'messages'.", source_);
    return value(json).dict();
  }

 private:
  simdjson::dom::element parse(std::string_view json) {
    static thread_local simdjson::dom::parser parser;
    const simdjson::padded_string padded(shallow_json(json));
    simdjson::dom::element root;
    if (const auto error = parser.parse(padded).get(root))
      throw data_error("{} is not JSON: {}.", source_, simdjson::error_message(error));
    return root;
  }

  std::string source_;
  Run run_;
};

}  // namespace

JinjaVariables::JinjaVariables() : values_(std::make_unique<DictBody>()) {
  values_->set("tools", Value::none());
  values_->set("documents", Value::none());
  set("add_generation_prompt", false);
}
JinjaVariables::~JinjaVariables() = default;
JinjaVariables::JinjaVariables(JinjaVariables&&) noexcept = default;

void JinjaVariables::add_record(std::string_view json, const std::string& source) {
  const DictBody fields = JsonValues(source).fields(json);
  for (const auto& [key, value] : fields.entries) values_->set(key, value);
}

void JinjaVariables::set_json(std::string_view name, std::string_view json) {
  values_->set(name, JsonValues(fmt::format("'{}'", name)).value(json));
}

void JinjaVariables::set_messages(std::span<const JinjaMessage> messages) {
  JsonValues read("a message");
  std::vector<Value> list;
  for (const JinjaMessage& message : messages) {
    DictBody fields;
    fields.set("role", read.run().text(std::string(message.role)));
    if (message.content.empty()) {
      fields.set("content", read.run().text(std::string(message.text)));
    } else if (message.content != "absent") {
      fields.set("content", read.value(message.content));
    }
    if (message.thinking) fields.set("reasoning_content", read.run().text(std::string(*message.thinking)));
    if (!message.fields.empty())
      for (const auto& [key, value] : read.fields(message.fields).entries) fields.set(key, value);
    list.push_back(read.run().dict(std::move(fields)));
  }
  values_->set("messages", read.run().list(std::move(list)));
}

void JinjaVariables::set(std::string_view name, std::string text) {
  values_->set(name, Value::text(std::move(text)));
}
void JinjaVariables::set(std::string_view name, bool value) { values_->set(name, Value(value)); }
bool JinjaVariables::has(std::string_view name) const {
  const Value* found = values_->find(name);
  return found && !found->is_none();
}

JinjaTemplate::JinjaTemplate(std::string_view text, std::string source, const jinja::JinjaLimits& limits)
    : tree_(std::make_unique<jinja::SyntaxTree>()), source_(std::move(source)), limits_(limits) {
  if (!is_utf8(text)) throw data_error("{} is not UTF-8.", source_);
  try {
    tree_->body = jinja::TemplateParser(jinja::cut_tokens(text), limits.nesting).parse();
    jinja::resolve_names(*tree_);
  } catch (const jinja::SyntaxFault& fault) {
    throw data_error("{}, line {}: {}.", source_, fault.line, fault.what);
  } catch (const jinja::TemplateFault& fault) {
    throw data_error("{}: {}.", source_, fault.what);
  }
}
JinjaTemplate::~JinjaTemplate() = default;
JinjaTemplate::JinjaTemplate(JinjaTemplate&&) noexcept = default;

JinjaTemplate::Rendering JinjaTemplate::render(const JinjaVariables& variables,
                                               std::optional<std::time_t> now) const {
  Run run(limits_, now ? *now : std::time(nullptr));
  jinja::Interpreter interpreter(run, *variables.values_);
  try {
    interpreter.render(*tree_);
  } catch (const jinja::RaisedByTemplate& raised) {
    throw data_error("{}, line {}, refuses this: {}", source_, run.line, raised.message);
  } catch (const jinja::TemplateFault& fault) {
    throw data_error("{}, line {}: {}.", source_, run.line,
                     fault.what.ends_with('.') ? fault.what.substr(0, fault.what.size() - 1) : fault.what);
  }
  return {std::move(interpreter.output), std::move(interpreter.generations),
          std::move(interpreter.generated_texts), std::move(interpreter.turns)};
}

}  // namespace tightloop
