#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "core/io/json_depth.h"
#include "data/read/line_reader.h"
#include "data/render/chat_text.h"
#include "data/render/render.h"
#include "infer/exam.h"
#include "infer/thoughts.h"

namespace tightloop {

namespace {

std::vector<int32_t> until_stop(std::vector<int32_t> ids, const std::vector<int32_t>& stops) {
  const auto stop =
      std::ranges::find_if(ids, [&](int32_t id) { return std::ranges::find(stops, id) != stops.end(); });
  ids.erase(stop, ids.end());
  return ids;
}

// Splits what was rendered for training into the prompt and what was to be learned. False where nothing is
// asked: no prompt, or no answer. An answer without thinking begins with a block that says so; `at_once`: it
// is asked with, not asked for.
bool split(const std::vector<int32_t>& ids, const std::vector<uint8_t>& mask, const Tokenizer& tokenizer,
           const std::vector<int32_t>& stops, bool at_once, ExamQuestion& question) {
  const auto first = std::ranges::find(mask, uint8_t{1}) - mask.begin();
  if (first == 0 || first == static_cast<int64_t>(ids.size())) return false;
  question.prompt.assign(ids.begin(), ids.begin() + first);
  auto answer = until_stop({ids.begin() + first, ids.end()}, stops);
  const auto thought = tokenizer.encode(kEmptyThinking, SpecialText::kParse);
  if (answer.size() > thought.size() && std::equal(thought.begin(), thought.end(), answer.begin())) {
    if (at_once) question.prompt.insert(question.prompt.end(), thought.begin(), thought.end());
    answer.erase(answer.begin(), answer.begin() + static_cast<int64_t>(thought.size()));
  }
  question.expected = tokenizer.decode(answer);
  question.shown = tokenizer.decode(question.prompt);
  return answer.size() <= kShortAnswer || question.expected.find("####") != std::string::npos;
}

std::string text_of(const nlohmann::ordered_json& record, const std::string& field,
                    const std::string& where) {
  const auto found = record.find(field);
  if (found == record.end()) throw data_error("{}: no field '{}'.", where, field);
  if (found->is_string()) return found->get<std::string>();
  if (found->is_number()) return found->dump();
  throw data_error("{}: '{}' is not text.", where, field);
}

// What the renderer of conversations refuses, plain questions refuse as well.
void demand_known_fields(const nlohmann::ordered_json& record, const DataConfig& config,
                         const std::string& where) {
  for (const std::string_view name : fields_with_meaning(RecordFormat::kQuestion)) {
    const auto found = record.find(name);
    if (found == record.end() || found->empty() || *found == "" || name == config.question_field ||
        name == config.answer_field || name == config.choices_field ||
        std::ranges::find(config.ignore_fields, name) != config.ignore_fields.end())
      continue;
    throw data_error("{}: the field '{}' would be lost; data.ignore_fields can name it.", where, name);
  }
}

/// Variables of the template join those of a record, which win.
void add_variables(const std::string& variables, nlohmann::ordered_json& record) {
  auto all = nlohmann::ordered_json::parse(variables);
  auto& own = record["chat_template_kwargs"];
  if (own.is_object()) all.update(own);
  if (own.is_object() || own.is_null()) own = std::move(all);
}

/// A question as ChatSession asks it: the model may think where its template lets it.
void ask_in_chat(const ChatTemplate& chat, const nlohmann::ordered_json& record, const std::string& text,
                 const Tokenizer& tokenizer, ExamQuestion& question) {
  const auto tools = record.value("tools", nlohmann::ordered_json()),
             variables = record.value("chat_template_kwargs", nlohmann::ordered_json());
  const std::string tool_list = tools.is_string() ? tools.get<std::string>()
                                : tools.empty()   ? ""
                                                  : tools.dump(),
                    given = variables.empty() ? "" : variables.dump();
  const Message turn{Role::kUser, text};
  Conversation asked(std::span(&turn, 1));
  asked.variables = given, asked.tools = tool_list;
  question.prompt = chat.prompt(asked);
  question.thinks = question.prompt != chat.prompt(asked, /*answers_at_once=*/true) ||
                    opens_thinking(tokenizer, question.prompt);
  question.shown = tokenizer.decode(question.prompt);
}

// The possible answers, in letters or in their own words.
void add_choices(std::string_view record, const DataConfig& config, const Tokenizer& tokenizer, bool letters,
                 const std::string& where, ExamQuestion& question) {
  try {
    const ChoiceQuestion choice = read_choice(record, config);
    question.right = choice.right;
    for (size_t i = 0; i < choice.choices.size(); ++i)
      question.choices.push_back(
          tokenizer.encode(letters ? std::string(choice.labels[i]) : fmt::format(" {}", choice.choices[i])));
  } catch (const BadRecord& bad) {
    throw data_error("{}: {}.", where, bad.why);
  }
}

}  // namespace

std::vector<ExamQuestion> exam_of(const std::vector<Question>& questions, const Tokenizer& tokenizer) {
  std::vector<ExamQuestion> exam;
  for (const auto& question : questions) {
    exam.push_back({.task = question.task,
                    .shown = question.prompt,
                    .expected = question.answer,
                    .prompt = tokenizer.encode(question.prompt)});
  }
  return exam;
}

std::vector<ExamQuestion> exam_of(const Documents& documents, const std::vector<std::string>& sources,
                                  const Tokenizer& tokenizer, const std::vector<int32_t>& stop_tokens,
                                  int64_t limit) {
  std::vector<ExamQuestion> exam;
  std::map<int32_t, int64_t> taken;
  std::vector<int32_t> ids;
  std::vector<uint8_t> mask;
  for (uint64_t i = 0; i < documents.size(); ++i) {
    const int32_t source = documents.source(i);
    if (limit > 0 && taken[source] >= limit) continue;
    ids.resize(documents.length(i)), mask.resize(documents.length(i));
    documents.read(documents.begin(i), ids.size(), ids.data());
    documents.read_mask(documents.begin(i), mask.size(), mask.data());
    ExamQuestion question;
    question.task =
        source < static_cast<int32_t>(sources.size()) ? sources[source] : fmt::format("{}", source);
    if (!split(ids, mask, tokenizer, stop_tokens, /*at_once=*/true, question)) continue;
    exam.push_back(std::move(question));
    ++taken[source];
  }
  return exam;
}

std::vector<ExamQuestion> read_exam(const std::string& file, const DataConfig& data,
                                    const Tokenizer& tokenizer, const ChatTemplate* chat,
                                    const std::vector<int32_t>& stop_tokens, int64_t limit,
                                    const std::string& variables) {
  DataConfig config = data;
  config.format = RecordFormat::kAuto;
  std::unique_ptr<Renderer> renderer;
  if (chat) {
    renderer = make_json_renderer(config, tokenizer,
                                  std::shared_ptr<const ChatTemplate>(std::shared_ptr<void>(), chat));
  }
  const std::string name = fs::path(file).stem().string();
  std::vector<ExamQuestion> exam;
  RecordBatch held;
  Rendered rendered;
  LineReader lines(file, static_cast<uint64_t>(config.max_record_bytes));
  while (limit == 0 || static_cast<int64_t>(exam.size()) < limit) {
    const auto status = lines.next();
    if (status == LineReader::Status::kEnd) break;
    const std::string where = fmt::format("'{}', line {}", file, lines.number());
    if (status != LineReader::Status::kLine) throw data_error("{} cannot be read.", where);
    if (lines.line().find_first_not_of(" \t") == std::string_view::npos) continue;
    auto record =
        nlohmann::ordered_json::parse(shallow_json(lines.line()), nullptr, /*allow_exceptions=*/false);
    if (!record.is_object()) throw data_error("{} is not a JSON object.", where);
    if (renderer && !variables.empty()) add_variables(variables, record);

    ExamQuestion question;
    held.clear();
    const std::string json = variables.empty() ? std::string(lines.line()) : record.dump();
    held.add({.bytes = json, .second = {}});
    const bool choice = record.contains(config.choices_field);
    if (renderer) {
      rendered.clear();
      renderer->render(held[0], rendered);
      if (rendered.bad != BadKind::kNone) throw data_error("{}: {}.", where, rendered.why);
      split(rendered.ids, rendered.mask, tokenizer, stop_tokens, /*at_once=*/choice, question);
      const auto shape = record_shape(held[0], config);
      if (shape && shape->format == RecordFormat::kQuestion)
        ask_in_chat(*chat, record, text_of(record, config.question_field, where), tokenizer, question);
      else if (!choice && !variables.empty())
        throw usage_error("{}: --template-kwargs is for records with '{}' and '{}'.", where,
                          config.question_field, config.answer_field);
    } else {
      demand_known_fields(record, config, where);
      question.shown = text_of(record, config.question_field, where);
      question.expected = text_of(record, config.answer_field, where);
      question.prompt = tokenizer.encode("Question: " + question.shown + "\nAnswer:");
    }
    if (choice)
      add_choices(held[0].bytes, config, tokenizer, /*letters=*/renderer != nullptr, where, question);
    if (question.prompt.empty()) throw data_error("{} asks nothing.", where);
    question.task = record.contains("task") ? text_of(record, "task", where) : name;
    exam.push_back(std::move(question));
  }
  if (exam.empty()) throw data_error("'{}' holds no question.", file);
  return exam;
}

}  // namespace tightloop
