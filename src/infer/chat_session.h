#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/render/chat.h"
#include "infer/calculator_calls.h"
#include "infer/generate.h"
#include "infer/loaded_run.h"
#include "model/language_model.h"
#include "tokenizer/tokenizer.h"

namespace tightloop {

/// The template of a run's conversations; none where the tokenizer lacks its control tokens.
std::unique_ptr<ChatTemplate> chat_template(const ChatConfig& config, const Tokenizer& tokenizer);

/// What ends an answer: the end of text, that of a turn, and what the model it started from stops at
/// (imported_stop_tokens()).
std::vector<int32_t> stop_tokens(const Tokenizer& tokenizer, const ChatTemplate* chat,
                                 const std::vector<int32_t>& imported = {});
/// The same of a loaded model, by the template of its recipe.
std::vector<int32_t> stop_tokens(const LoadedRun& run);

/// What a template is given besides the messages, in JSON: a list of tools, and an object of variables (each
/// empty: none). A usage error that names what the template would not read.
void check_template_inputs(const ChatTemplate& chat, const std::string& tools, const std::string& variables);

/// What the user says last in a conversation that a chat template has written; as it is where there is none.
std::string plain_question(const std::string& shown, const ChatConfig& chat, const Tokenizer& tokenizer);

/// A conversation with a model. What was read in one turn is not read again in the next.
class ChatSession {
 public:
  struct Turn {
    Role role;
    std::string text;
    std::vector<std::pair<CalculatorCalls::Part::Kind, std::string>> parts{};  // of an answer with calls
  };
  struct Reply {
    std::string text;
    AnswerEnd end = AnswerEnd::kLength;
    int64_t tokens = 0, read = 0;  // made, and newly read before that
    size_t dropped = 0;            // turns that were left out to make room in the context
    int64_t prompt = 0;            // tokens that were asked with: the question alone may outgrow the context
  };

  /// All must outlive the session. `context` tokens are the most that prompt and answer may take; older turns
  /// are left out where there are more. `imported` as for stop_tokens().
  ChatSession(LanguageModel& model, const Tokenizer& tokenizer, const ChatTemplate& chat, int64_t context,
              const std::vector<int32_t>& imported = {});

  /// Asks, and waits for the answer; `on_text` sees it as it arrives. Both turns join the history, also where
  /// the answer was interrupted. A question far longer than the context is a usage error.
  Reply ask(const std::string& text, const SamplingConfig& sampling, const std::vector<std::string>& stops,
            const std::function<void(const std::string&)>& on_text = {});

  /// Whether calls of the calculator in answers are answered (they are).
  void use_calculator(bool used) { uses_calculator_ = used; }
  /// Forgets everything but the system prompt.
  void reset();
  void set_system(std::string text) { system_ = std::move(text); }
  /// As check_template_inputs() has them, and says what is wrong with them.
  void set_template_inputs(std::string tools, std::string variables);
  int64_t context() const { return context_; }
  const std::vector<Turn>& history() const { return history_; }
  /// The conversation as one line of JSON that training reads: {"messages": [...]}.
  std::string to_json() const;

 private:
  std::vector<int32_t> prompt(size_t first_turn) const;
  Decoder& decoder_with(const Prompt& asked, int64_t max_tokens);

  LanguageModel& model_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_;
  const int64_t context_;
  const std::vector<int32_t> stop_tokens_;
  const CalculatorCalls calculator_;
  bool uses_calculator_ = true;
  std::string system_, tools_, variables_;
  std::vector<Turn> history_;
  size_t first_turn_ = 0;             // turns before it no longer fit
  std::unique_ptr<Decoder> decoder_;  // holds what was read
  int64_t cache_tokens_ = 0;          // that it was made for
};

}  // namespace tightloop
