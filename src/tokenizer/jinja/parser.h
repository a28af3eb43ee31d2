#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/lexer.h"
#include "tokenizer/jinja/syntax.h"

namespace tightloop::jinja {

/// Makes a tree of tokens, by jinja2's grammar. Throws SyntaxFault.
class TemplateParser {
 public:
  TemplateParser(std::vector<LexToken> tokens, int nesting) : tokens_(std::move(tokens)), nesting_(nesting) {}
  Body parse();

 private:
  using Names = std::initializer_list<std::string_view>;

  // parser.cpp: tokens and statements.
  const LexToken& current() const { return tokens_[at_]; }
  const LexToken& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  LexToken take();
  bool at_sign(std::string_view sign) const {
    return current().kind == LexKind::kSign && current().text == sign;
  }
  bool at_name(std::string_view name) const {
    return current().kind == LexKind::kName && current().text == name;
  }
  bool skip_sign(std::string_view sign);
  bool skip_name(std::string_view name);
  void expect_sign(std::string_view sign);
  std::string expect_name();
  void expect(LexKind kind);
  [[noreturn]] void refuse(std::string what, int line = 0) const;

  Body parse_until(Names ends);
  Body parse_body(Names ends);
  std::unique_ptr<Statement> parse_statement();
  std::unique_ptr<Statement> statement(StatementKind kind);
  std::unique_ptr<Statement> parse_for();
  std::unique_ptr<Statement> parse_if();
  std::unique_ptr<Statement> parse_set();
  std::unique_ptr<Statement> parse_with();
  std::unique_ptr<Statement> parse_macro();
  std::unique_ptr<Statement> parse_call_block();
  std::unique_ptr<Statement> parse_block();
  void parse_print(Body& body);
  void parse_signature(FunctionBody& function);

  // parse_expression.cpp.
  struct TupleRules {
    bool simplified = false, conditions = true, parentheses = false, namespaces = false;
  };
  ExpressionPtr make(ExpressionKind kind, int line, std::vector<ExpressionPtr> operands = {}) const;
  ExpressionPtr checked(ExpressionPtr expression) const;
  ExpressionPtr parse_target(bool namespaces);
  ExpressionPtr parse_name_target();
  ExpressionPtr parse_tuple(const TupleRules& rules);
  ExpressionPtr parse_expression(bool conditions = true);
  ExpressionPtr parse_condition();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool filters = true);
  ExpressionPtr parse_primary(bool namespaces = false);
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_filters(ExpressionPtr node);
  ExpressionPtr parse_subscript(ExpressionPtr node);
  ExpressionPtr parse_subscribed();
  ExpressionPtr parse_call(ExpressionPtr node);
  ExpressionPtr parse_filter(ExpressionPtr node, bool inline_start);
  ExpressionPtr parse_test(ExpressionPtr node);
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  void parse_arguments(Expression& call);
  std::string parse_dotted_name();

  /// Counts the levels that wait for each other: every way that the parser calls itself goes through one.
  class Level {
   public:
    explicit Level(TemplateParser& parser) : parser_(parser) {
      if (++parser_.levels_ > parser_.nesting_) parser_.refuse("the template nests too deeply");
    }
    ~Level() { --parser_.levels_; }
    Level(const Level&) = delete;

   private:
    TemplateParser& parser_;
  };

  std::vector<LexToken> tokens_;
  size_t at_ = 0;
  int nesting_, levels_ = 0;
};

}  // namespace tightloop::jinja
