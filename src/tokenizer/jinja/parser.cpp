#include "tokenizer/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>

namespace tightloop::jinja {

namespace {

std::string described(const LexToken& token) {
  switch (token.kind) {
    case LexKind::kData:
      return "text";
    case LexKind::kOutputBegin:
      return "'{{'";
    case LexKind::kOutputEnd:
      return "'}}'";
    case LexKind::kTagBegin:
      return "'{%'";
    case LexKind::kTagEnd:
      return "'%}'";
    case LexKind::kEnd:
      return "the end of the template";
    default:
      return "'" + token.text + "'";
  }
}

}  // namespace

LexToken TemplateParser::take() {
  LexToken token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

void TemplateParser::refuse(std::string what, int line) const {
  throw SyntaxFault{line ? line : current().line, std::move(what)};
}

bool TemplateParser::skip_sign(std::string_view sign) {
  if (!at_sign(sign)) return false;
  take();
  return true;
}

bool TemplateParser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}

void TemplateParser::expect_sign(std::string_view sign) {
  if (!skip_sign(sign)) refuse(fmt::format("'{}' was expected, not {}", sign, described(current())));
}

std::string TemplateParser::expect_name() {
  if (current().kind != LexKind::kName)
    refuse(fmt::format("a name was expected, not {}", described(current())));
  return take().text;
}

void TemplateParser::expect(LexKind kind) {
  if (current().kind != kind)
    refuse(fmt::format("{} was expected, not {}", described({kind, 0, ""}), described(current())));
  take();
}

Body TemplateParser::parse() {
  Body body = parse_until({});
  if (current().kind != LexKind::kEnd) refuse(fmt::format("unexpected {}", described(current())));
  return body;
}

std::unique_ptr<Statement> TemplateParser::statement(StatementKind kind) {
  auto made = std::make_unique<Statement>();
  made->kind = kind;
  made->line = current().line;
  return made;
}

/// Statements up to a tag with one of these names, which stays the current token.
Body TemplateParser::parse_until(Names ends) {
  const Level level(*this);
  Body body;
  while (current().kind != LexKind::kEnd) {
    if (current().kind == LexKind::kData) {
      auto data = statement(StatementKind::kData);
      data->text = take().text;
      body.push_back(std::move(data));
    } else if (current().kind == LexKind::kOutputBegin) {
      auto output = statement(StatementKind::kOutput);
      take();
      output->expression = parse_tuple({});
      expect(LexKind::kOutputEnd);
      body.push_back(std::move(output));
    } else {
      expect(LexKind::kTagBegin);
      if (current().kind == LexKind::kName && std::ranges::find(ends, current().text) != ends.end())
        return body;
      if (at_name("print"))
        parse_print(body);
      else
        body.push_back(parse_statement());
      expect(LexKind::kTagEnd);
    }
  }
  return body;
}

/// The rest of a tag, its body, and the name of the tag that ends it.
Body TemplateParser::parse_body(Names ends) {
  skip_sign(":");
  expect(LexKind::kTagEnd);
  Body body = parse_until(ends);
  if (current().kind == LexKind::kEnd)
    refuse(fmt::format("the template ends where '{}' was expected", *(ends.end() - 1)));
  return body;
}

std::unique_ptr<Statement> TemplateParser::parse_statement() {
  if (current().kind != LexKind::kName) refuse(fmt::format("a tag begins with {}", described(current())));
  const std::string tag = current().text;
  if (tag == "for") return parse_for();
  if (tag == "if") return parse_if();
  if (tag == "set") return parse_set();
  if (tag == "with") return parse_with();
  if (tag == "macro") return parse_macro();
  if (tag == "call") return parse_call_block();
  if (tag == "block") return parse_block();
  if (tag == "filter") {
    auto made = statement(StatementKind::kFilterBlock);
    take();
    made->expression = parse_filter(nullptr, true);
    made->body = parse_body({"endfilter"});
    take();
    return made;
  }
  if (tag == "generation") {
    auto made = statement(StatementKind::kGeneration);
    take();
    made->function = std::make_unique<FunctionBody>();
    made->body = parse_body({"endgeneration"});
    take();
    return made;
  }
  if (tag == "autoescape") {
    auto made = statement(StatementKind::kAutoescape);
    take();
    made->expression = parse_expression();
    made->body = parse_body({"endautoescape"});
    take();
    return made;
  }
  if (tag == "break" || tag == "continue") {
    auto made = statement(tag == "break" ? StatementKind::kBreak : StatementKind::kContinue);
    take();
    return made;
  }
  for (const std::string_view other : {"include", "import", "from", "extends"})
    if (tag == other)
      refuse(fmt::format("'{}' is not supported: a chat template stands alone, in one file", tag));
  refuse(fmt::format("the tag '{}' is not known here", tag));
}

void TemplateParser::parse_print(Body& body) {
  take();
  for (bool first = true; current().kind != LexKind::kTagEnd; first = false) {
    if (!first) expect_sign(",");
    auto output = statement(StatementKind::kOutput);
    output->expression = parse_expression();
    body.push_back(std::move(output));
  }
}

std::unique_ptr<Statement> TemplateParser::parse_for() {
  auto made = statement(StatementKind::kFor);
  take();
  made->targets.push_back(parse_target(false));
  if (!skip_name("in")) refuse(fmt::format("'in' was expected, not {}", described(current())));
  made->expression = parse_tuple({.conditions = false});
  if (skip_name("if")) made->test = parse_expression();
  made->recursive = skip_name("recursive");
  made->body = parse_body({"endfor", "else"});
  if (take().text == "else") {
    made->otherwise = parse_body({"endfor"});
    take();
  }
  return made;
}

std::unique_ptr<Statement> TemplateParser::parse_if() {
  auto made = statement(StatementKind::kIf);
  do {
    take();
    auto test = parse_tuple({.conditions = false});
    Body body = parse_body({"elif", "else", "endif"});
    made->branches.emplace_back(std::move(test), std::move(body));
  } while (at_name("elif"));
  if (take().text == "else") {
    made->otherwise = parse_body({"endif"});
    take();
  }
  return made;
}

std::unique_ptr<Statement> TemplateParser::parse_set() {
  auto made = statement(StatementKind::kSet);
  take();
  made->targets.push_back(parse_target(true));
  if (skip_sign("=")) {
    made->expression = parse_tuple({});
    return made;
  }
  made->kind = StatementKind::kSetBlock;
  made->expression = parse_filter(nullptr, false);
  made->body = parse_body({"endset"});
  take();
  return made;
}

std::unique_ptr<Statement> TemplateParser::parse_with() {
  auto made = statement(StatementKind::kWith);
  take();
  while (current().kind != LexKind::kTagEnd) {
    if (!made->targets.empty()) expect_sign(",");
    made->targets.push_back(parse_target(false));
    expect_sign("=");
    made->values.push_back(parse_expression());
  }
  made->body = parse_body({"endwith"});
  take();
  return made;
}

void TemplateParser::parse_signature(FunctionBody& function) {
  expect_sign("(");
  while (!at_sign(")")) {
    if (!function.parameters.empty()) expect_sign(",");
    function.parameters.push_back(parse_name_target());
    if (skip_sign("="))
      function.defaults.push_back(parse_expression());
    else if (!function.defaults.empty())
      refuse("a parameter without a default follows one that has a default");
  }
  expect_sign(")");
}

std::unique_ptr<Statement> TemplateParser::parse_macro() {
  auto made = statement(StatementKind::kMacro);
  take();
  made->targets.push_back(parse_name_target());
  made->function = std::make_unique<FunctionBody>();
  made->function->name = made->targets[0]->name;
  parse_signature(*made->function);
  made->body = parse_body({"endmacro"});
  take();
  return made;
}

std::unique_ptr<Statement> TemplateParser::parse_call_block() {
  auto made = statement(StatementKind::kCallBlock);
  take();
  made->function = std::make_unique<FunctionBody>();
  if (at_sign("(")) parse_signature(*made->function);
  made->expression = parse_expression();
  if (made->expression->kind != ExpressionKind::kCall)
    refuse("a call block calls something: {% call f(x) %}", made->line);
  made->body = parse_body({"endcall"});
  take();
  return made;
}

std::unique_ptr<Statement> TemplateParser::parse_block() {
  auto made = statement(StatementKind::kBlock);
  take();
  made->text = expect_name();
  if (at_name("scoped") || at_name("required"))
    refuse(fmt::format("'{}' of blocks is not supported: a chat template stands alone, in one file",
                       current().text));
  made->function = std::make_unique<FunctionBody>();
  made->body = parse_body({"endblock"});
  take();
  skip_name(made->text);
  return made;
}

}  // namespace tightloop::jinja
