#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/io/confined_program.h"
#include "core/terminal/progress_line.h"
#include "infer/calculator_calls.h"
#include "infer/generate.h"
#include "infer/suite/suite_runs.h"
#include "infer/text_stream.h"
#include "infer/thoughts.h"
#include "tokenizer/unicode/python_text.h"

namespace tightloop {

namespace {

constexpr std::string_view kNumberCharacters = "0123456789.,";

/// What follows the first "#### " that a number follows, without commas.
std::optional<std::string> marked_number(std::string_view text) {
  constexpr std::string_view kMark = "#### ";
  for (size_t at = text.find(kMark); at != text.npos; at = text.find(kMark, at + 1)) {
    const size_t begin = at + kMark.size();
    const bool negative = begin < text.size() && text[begin] == '-';
    const size_t digits = begin + negative;
    const size_t end = std::min(text.find_first_not_of(kNumberCharacters, digits), text.size());
    if (end == digits) continue;
    std::string number(text.substr(begin, end - begin));
    std::erase(number, ',');
    return number;
  }
  return {};
}

bool is_digit(std::string_view text, size_t at) {
  return at < text.size() && text[at] >= '0' && text[at] <= '9';
}

/// Where the number ends that begins here: commas stand between its thousands, and a digit behind its point.
size_t number_end(std::string_view text, size_t begin) {
  size_t end = begin;
  while (is_digit(text, end)) ++end;
  const auto thousands = [&] {
    return text.substr(end).starts_with(',') && is_digit(text, end + 1) && is_digit(text, end + 2) &&
           is_digit(text, end + 3) && !is_digit(text, end + 4);
  };
  if (end > begin && end - begin <= 3)
    while (thousands()) end += 4;
  if (!text.substr(end).starts_with('.') || !is_digit(text, end + 1)) return end;
  for (++end; is_digit(text, end);) ++end;
  return end;
}

std::optional<double> last_number(std::string_view text) {
  size_t begin = text.npos, end = 0;
  for (size_t at = 0; at < text.size();) {
    // A point begins a number only where none ends in it, and it is no dot of several.
    const bool point = text[at] == '.' && is_digit(text, at + 1) &&
                       (at == 0 || (text[at - 1] != '.' && !is_digit(text, at - 1)));
    if (!point && !is_digit(text, at)) {
      ++at;
      continue;
    }
    begin = at;
    at = end = number_end(text, at);
  }
  if (begin == text.npos) return {};
  std::string number(text.substr(begin, end - begin));
  std::erase(number, ',');
  const auto before = text.substr(0, text.find_last_not_of('$', begin - 1) + 1);  // -$5
  const bool minus = begin > 0 && before.ends_with('-');
  if (minus && before.find_last_of("0123456789)") != before.size() - 2) number.insert(0, "-");
  double value = 0;
  const auto read = std::from_chars(number.data(), number.data() + number.size(), value);
  if (read.ec != std::errc()) return {};
  return value;
}

/// The problems of a task as prompts, each as often as it is sampled.
std::vector<Prompt> prompts_of(const SuiteTask& task, const SuiteModel& model) {
  std::vector<Prompt> prompts;
  for (size_t problem = 0; problem < task.problems.size(); ++problem) {
    const auto ids = writing_prompt(task, problem, model);
    for (int64_t sample = 0; sample < task.samples; ++sample)
      prompts.push_back({ids, static_cast<uint64_t>(sample)});
  }
  return prompts;
}

std::vector<std::string> written(const SuiteTask& task, const SuiteModel& model,
                                 const std::vector<Prompt>& prompts, const SuiteOptions& options) {
  std::vector<TextStream> streams;
  for (size_t i = 0; i < prompts.size(); ++i) streams.emplace_back(model.tokenizer, task.stop);
  GenerateOptions how;
  how.sampling.temperature = task.temperature, how.sampling.max_tokens = task.max_tokens;
  how.stop_tokens = model.stop_tokens, how.vocab_size = model.tokenizer.vocab_size();
  how.graphs = options.graphs;
  if (task.chats() && task.calculator) how.calculator = model.calculator;
  how.on_token = [&](size_t row, int32_t id) {
    streams[row].add(id);
    return !streams[row].stopped();
  };
  std::optional<ProgressLine> line;
  if (options.progress) line.emplace(task.name, prompts.size(), ProgressLine::Unit::kCount);
  generate(model.model, prompts, how, options.rows, [&](size_t done) {
    if (line) line->set(done);
  });
  throw_if_interrupted();  // half of the answers would be wrong ones
  std::vector<std::string> texts;
  for (TextStream& stream : streams) {
    stream.finish();
    texts.push_back(stream.text());
  }
  return texts;
}

/// Lines that import something, as far as nothing but comments stands before them.
std::string imports_of(std::string_view code) {
  std::string imports;
  for (size_t begin = 0; begin <= code.size();) {
    const size_t end = std::min(code.find('\n', begin), code.size());
    const auto line = python_text::strip(code.substr(begin, end - begin));
    begin = end + 1;
    if (line.starts_with("import ") || line.starts_with("from "))
      imports += (imports.empty() ? "" : "\n") + std::string(line);
    else if (!line.empty() && !line.starts_with('#'))
      break;
  }
  return imports;
}

/// The first block between ``` (or ```python) and ``` at the beginning of a line, or all of the text.
std::string code_of(std::string_view answer) {
  constexpr std::string_view kFence = "```", kPython = "python";
  for (size_t open = answer.find(kFence); open != answer.npos; open = answer.find(kFence, open + 1)) {
    size_t begin = open + kFence.size();
    if (answer.substr(begin).starts_with(kPython)) begin += kPython.size();
    const size_t text = std::min(answer.find_first_not_of(" \t\r\n\f\v", begin), answer.size());
    const auto space = answer.substr(begin, text - begin);
    if (space.find('\n') == space.npos) continue;
    size_t close = answer.find("\n```", begin + space.rfind('\n') + 1);
    if (close == answer.npos) close = answer.find("\n```", begin + space.find('\n') + 1);  // an empty block
    if (close == answer.npos) continue;
    return std::string(python_text::strip(answer.substr(begin, close - begin)));
  }
  return std::string(python_text::strip(answer));
}

}  // namespace

bool matches(AnswerMatch match, const std::string& answer, const std::string& expected) {
  if (match == AnswerMatch::kMarked) {
    const auto wanted = marked_number(expected);
    return wanted && marked_number(answer) == wanted;
  }
  if (match == AnswerMatch::kNumber) {
    const auto wanted = last_number(expected), found = last_number(answer);
    return wanted && found && std::abs(*found - *wanted) <= 1e-9 * std::max(1.0, std::abs(*wanted));
  }
  return python_text::strip(answer) == python_text::strip(expected);
}

std::string test_program(const std::string& prompt, const std::string& answer, const std::string& test,
                         const std::string& entry_point) {
  return imports_of(prompt) + "\n\n" + code_of(answer) + "\n\n" + test + "\ncheck(" + entry_point + ")\n";
}

SuiteTaskResult write_answers(const SuiteTask& task, const SuiteModel& model, const SuiteOptions& options) {
  const size_t problems = task.problems.size();
  const auto samples = static_cast<size_t>(task.samples);
  // What is expected is read before anything is written.
  std::vector<std::string> expected(problems), tests(problems);
  for (size_t i = 0; i < problems; ++i) {
    if (task.kind == SuiteKind::kCode) {
      tests[i] = suite_text(task, i, "test"), expected[i] = suite_text(task, i, "entry_point");
    } else {
      check_problem(task, i);
      expected[i] = suite_text(task, i, task.answer_field);
    }
  }
  const auto prompts = prompts_of(task, model);
  const auto answers = written(task, model, prompts, options);
  SuiteTaskResult result;
  result.right.resize(problems);
  std::optional<ProgressLine> line;
  if (options.progress && task.kind == SuiteKind::kCode)
    line.emplace(task.name + ", tests", problems, ProgressLine::Unit::kCount);
  for (size_t i = 0; i < problems; ++i) {
    result.answers.push_back(answers[i * samples]);
    for (size_t sample = 0; sample < samples && !result.right[i]; ++sample) {
      std::string_view said = answers[i * samples + sample];
      if (task.chats())
        said = without_thoughts(said, opens_thinking(model.tokenizer, prompts[i * samples].ids));
      const std::string answer(said);
      if (task.kind != SuiteKind::kCode) {
        result.right[i] = matches(task.match, answer, expected[i]);
        continue;
      }
      throw_if_interrupted();
      const auto program =
          test_program(suite_text(task, i, task.question_field), answer, tests[i], expected[i]);
      // Whoever leaves before the tests are through has not passed them.
      constexpr int kPassed = 93;
      const std::string whole = fmt::format("{}\nimport os\nos._exit({})\n", program, kPassed);
      result.right[i] = run_confined(options.python, whole, {.success = kPassed}) == ProgramEnd::kSucceeded;
    }
    if (line) line->add(1);
  }
  return result;
}

}  // namespace tightloop
