#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <cstdlib>
#include <memory>
#include <utility>

#include "cli/line_input.h"
#include "cli/main_settings.h"
#include "cli/model_choice.h"
#include "cli/output.h"
#include "cli/sampling_options.h"
#include "cli/verbs.h"
#include "cli/verbs/json_argument.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "infer/calculator_calls.h"
#include "infer/chat_session.h"
#include "train/run/run_tokenizer.h"

namespace tightloop::cli {

namespace {

constexpr const char* kHelp =
    "  /reset      forget the conversation\n"
    "  /save FILE  write it as a line of JSON that training reads\n"
    "  /history    show it\n"
    "  /help       this\n"
    "  /quit       end (Ctrl-D too); Ctrl-C stops an answer\n";

struct ChatArguments {
  ModelChoice model;
  SamplingConfig sampling;
  std::string system, tools, variables;
  std::vector<std::string> stops;
  bool no_calculator = false;
};

// Questions from standard input, answers to standard output; prompts and colours only where a person types.
class ChatTerminal {
 public:
  ChatTerminal(ChatSession& session, const ChatArguments& options)
      : session_(session),
        options_(options),
        typed_(::isatty(STDIN_FILENO) && ::isatty(STDOUT_FILENO)),
        coloured_(typed_ && !std::getenv("NO_COLOR")),
        input_(typed_, "> ", coloured_ ? "1;36" : nullptr) {}

  void run() {
    if (typed_) put("Ask something; /help lists commands.\n");
    for (;;) {
      const auto line = input_.next();
      if (!line) break;
      ++line_;
      if (line->interrupted) {
        put("(/quit or Ctrl-D ends)\n");
      } else if (line->text.starts_with('/')) {
        if (!command(line->text)) return;
      } else if (line->text.find_first_not_of(" \t") != std::string::npos) {
        answer(line->text);
      }
    }
    if (typed_) return put("\n");
    if (left_out_) throw Stop{static_cast<int>(ExitCode::kData)};
  }

 private:
  std::string styled(const std::string& text, const char* style) const {
    return coloured_ ? fmt::format("\033[{}m{}\033[0m", style, text) : text;
  }

  void answer(const std::string& question) {
    ChatSession::Reply reply;
    try {
      reply = session_.ask(question, options_.sampling, options_.stops,
                           [](const std::string& text) { put(shown(text)); });
    } catch (const Error& error) {
      if (error.code() != ExitCode::kUsage) throw;
      log::warn("{}{}", typed_ ? "" : fmt::format("line {} is left out: ", line_), error.what());
      left_out_ = true;
    }
    put("\n");
    if (reply.prompt > session_.context())
      log::warn("The question takes {} tokens, more than the {} that the model was trained on.", reply.prompt,
                session_.context());
    const bool stopped = interrupted();
    clear_interrupt();
    throw_if_interrupted();  // a signal other than Ctrl-C
    if (!typed_) {
      if (reply.dropped > 0 && !std::exchange(told_of_dropped_, true))
        log::warn("From line {} on the oldest turns no longer fit into the model's context and are left out.",
                  line_);
      return;
    }
    if (reply.dropped > 0)
      put(styled("(the oldest turns no longer fit into the model's context and were left out)\n", "2"));
    if (stopped) put(styled("(stopped)\n", "2"));
    if (reply.end == AnswerEnd::kLength)
      put(styled(fmt::format("(cut off after {} tokens; see --max-tokens)\n", reply.tokens), "2"));
  }

  // False where the conversation is over.
  bool command(const std::string& line) {
    const auto space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/quit" || name == "/exit") return false;
    if (name == "/reset") {
      session_.reset();
      put("(a new conversation)\n");
    } else if (name == "/save") {
      save(rest);
    } else if (name == "/history") {
      for (const auto& turn : session_.history())
        put(fmt::format("{} {}\n", styled(turn.role == Role::kUser ? ">" : "<", "1;36"), shown(turn.text)));
    } else {
      if (name != "/help") put(fmt::format("There is no command {}.\n", printable(name)));
      put(kHelp);
    }
    return true;
  }

  void save(const std::string& file) {
    if (file.empty()) return put("Name a file: /save talk.jsonl\n");
    if (path_exists(file) && file != saved_)
      return put(fmt::format("{} exists already: name another file.\n", printable(file)));
    try {
      write_file_whole(file, (file == saved_ ? read_file(file) : "") + session_.to_json() + "\n");
      saved_ = file;
      put(fmt::format("(saved in {})\n", printable(file)));
    } catch (const Error& error) {
      put(printable(error.what()) + "\n");
    }
  }

  ChatSession& session_;
  std::string saved_;  // the file of this session's conversations, to which a line may be added
  const ChatArguments& options_;
  const bool typed_, coloured_;
  LineInput input_;
  int64_t line_ = 0;
  bool left_out_ = false;         // a question that the model cannot read
  bool told_of_dropped_ = false;  // turns, where nobody types
};

void give_template_inputs(const ChatArguments& options, ChatSession& session) {
  std::string tools, variables;
  if (!options.tools.empty())
    tools = json_argument(read_file(options.tools), fmt::format("'{}' (--tools)", options.tools),
                          /*list=*/true);
  if (!options.variables.empty()) variables = json_argument(options.variables, "--template-kwargs");
  session.set_template_inputs(tools == "[]" ? "" : tools, variables);
}

void chat(const ChatArguments& options, const Settings& settings) {
  for (const auto& stop : options.stops)
    if (stop.empty()) throw usage_error("a stop string is empty, which would stop every answer at once.");
  auto run = options.model.load();
  Config config = run.recipe.bind();
  config.apply(settings);
  if (config.commanded("chat.template")) give_chat_template(run.recipe.chat, *run.tokenizer);
  const ChatTemplate chat(run.recipe.chat, *run.tokenizer);
  if (has_seen_no_conversation(run))
    log::warn(
        "This model was trained on text and has seen no conversation. Fine-tune it on some: "
        "--train.init_from in a recipe for them; or let it continue a text: tightloop generate.");
  ChatSession session(*run.model, *run.tokenizer, chat, run.recipe.model.context,
                      imported_stop_tokens(run.metadata));
  session.set_system(options.system);
  give_template_inputs(options, session);
  session.use_calculator(!options.no_calculator);
  ChatTerminal(session, options).run();
}

}  // namespace

void add_chat(CLI::App& app, const Settings& settings) {
  auto options = std::make_shared<ChatArguments>();
  options->sampling.max_tokens = 512;
  auto* verb = app.add_subcommand("chat", "Talk to a model that learned conversations");
  options->model.add_to(*verb);
  options->model.add_weights_to(*verb);
  add_sampling(*verb, options->sampling);
  verb->add_option("--system", options->system, "A system prompt (default: the recipe's)");
  verb->add_option("--tools", options->tools,
                   "A JSON file with a list of tools, which the chat template shows to the model; its calls "
                   "are printed, not run");
  verb->add_option("--template-kwargs", options->variables,
                   "Variables of the chat template: a JSON object, such as '{\"enable_thinking\": false}'");
  verb->add_option("--stop", options->stops, "A text that ends an answer; may be given several times")
      ->allow_extra_args(false);
  verb->add_flag("--no-calculator", options->no_calculator, "Leave calls of the calculator unanswered");
  verb->footer(std::string("Lines from a pipe are asked one after another.\n") + kTakesSettings +
               "Example: tightloop chat --run runs/sft-gsm8k --temperature 0");
  verb->callback([=] { chat(*options, settings); });
}

}  // namespace tightloop::cli
