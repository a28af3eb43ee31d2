#include "infer/suite/suite_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "core/error.h"
#include "core/files.h"
#include "core/io/json_depth.h"
#include "core/io/yaml_entries.h"
#include "core/random/python_random.h"
#include "data/read/line_reader.h"
#include "infer/suite/suite_prompts.h"

namespace tightloop {

namespace {

constexpr uint64_t kLongestProblem = 64 << 20;

/// The problems of a task in the order in which nanochat asks them.
void read_problems(SuiteTask& task, const fs::path& folder, int64_t limit) {
  const fs::path file = folder / task.data;
  task.file = file.string();
  LineReader lines(file, kLongestProblem);
  for (auto status = lines.next(); status != LineReader::Status::kEnd; status = lines.next()) {
    if (status != LineReader::Status::kLine)
      throw data_error("'{}', line {} cannot be read.", file.string(), lines.number());
    if (lines.line().find_first_not_of(" \t") == std::string_view::npos) continue;
    auto record = nlohmann::json::parse(shallow_json(lines.line()), nullptr, /*allow_exceptions=*/false);
    if (!record.is_object())
      throw data_error("'{}', line {} is not a JSON object.", file.string(), lines.number());
    task.problems.push_back(std::move(record));
    task.lines.push_back(static_cast<int64_t>(lines.number()));
  }
  if (task.problems.empty()) throw data_error("'{}' holds no problem.", file.string());
  if (task.seed >= 0) {  // one seed, one permutation
    PythonRandom(static_cast<uint64_t>(task.seed)).shuffle(task.problems);
    PythonRandom(static_cast<uint64_t>(task.seed)).shuffle(task.lines);
  }
  for (const int64_t most : {task.max_problems, limit})
    if (most > 0 && most < std::ssize(task.problems)) {
      task.problems.resize(static_cast<size_t>(most));
      task.lines.resize(task.problems.size());
    }
  if (task.shots >= std::ssize(task.problems))
    throw data_error("task '{}' has {} problems, too few for {} examples before each of them.", task.name,
                     task.problems.size(), task.shots);
  for (size_t problem = 0; problem < task.problems.size(); ++problem) check_problem(task, problem);
}

/// A line of a CSV table, with fields in quotes or not.
std::vector<std::string> csv_fields(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      if (quoted && i + 1 < line.size() && line[i + 1] == '"')
        fields.back() += line[++i];
      else
        quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += line[i];
    }
  }
  return fields;
}

/// Baselines in percent by task, from eval_meta_data.csv.
std::map<std::string, double> read_baselines(const fs::path& file) {
  std::map<std::string, double> baselines;
  const auto lines = read_lines(file);
  const auto names = lines.empty() ? std::vector<std::string>() : csv_fields(lines[0]);
  const auto column = [&](const char* name) {
    const auto found = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
    if (found == names.size()) throw data_error("'{}' has no column '{}'.", file.string(), name);
    return found;
  };
  const size_t task = column("Eval Task"), baseline = column("Random baseline");
  for (size_t i = 1; i < lines.size(); ++i) {
    const auto fields = csv_fields(lines[i]);
    if (fields.size() <= std::max(task, baseline)) continue;
    const std::string& text = fields[baseline];
    double value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (read.ec == std::errc()) baselines[fields[task]] = value;
  }
  return baselines;
}

/// nanochat's core.yaml: what it reads of each task, and nothing else.
struct CoreTask {
  std::string label, dataset_uri, icl_task_type, delimiter = " ";
  std::vector<std::string> num_fewshot;

  explicit CoreTask(const YamlEntry& entry, const fs::path& file) {
    Fields fields;
    fields.add("label", label, "");
    fields.add("dataset_uri", dataset_uri, "");
    fields.add("icl_task_type", icl_task_type, "");
    fields.add("continuation_delimiter", delimiter, "");
    fields.add("num_fewshot", num_fewshot, "");
    YamlEntry known;
    for (const YamlItem& item : entry)
      for (const Field& field : fields.all())
        if (field.name() == item.key) known.push_back(item);
    fill_fields(fields, known, file);
  }
};

SuiteTask task_of(const CoreTask& core, const std::map<std::string, double>& baselines,
                  const fs::path& file) {
  const auto kind = choice_named<SuiteKind>(core.icl_task_type);
  if (!kind || core.num_fewshot.empty() || !baselines.contains(core.label))
    throw usage_error(
        "'{}': the task '{}' needs an icl_task_type (multiple_choice, schema or language_modeling), a "
        "num_fewshot and a baseline in eval_meta_data.csv.",
        file.string(), core.label);
  SuiteTask task;
  task.name = core.label, task.data = core.dataset_uri, task.kind = *kind, task.delimiter = core.delimiter;
  Fields fields;
  task.describe(fields);
  fill_fields(fields, {{"shots", {core.num_fewshot[0]}}}, file);
  task.baseline = 0.01 * baselines.at(core.label);
  return task;
}

void check_tasks(const std::vector<SuiteTask>& tasks, const fs::path& file) {
  if (tasks.empty()) throw usage_error("'{}' lists no task.", file.string());
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].name.empty() || tasks[i].data.empty())
      throw usage_error("'{}': task {} needs a name and a data file.", file.string(), i + 1);
    const auto same = std::ranges::find(tasks, tasks[i].name, &SuiteTask::name) - tasks.begin();
    if (same < static_cast<ptrdiff_t>(i))
      throw usage_error("'{}': two tasks have the name '{}'.", file.string(), tasks[i].name);
    if (tasks[i].samples > 1 && tasks[i].temperature == 0)
      throw usage_error("'{}': at temperature 0 all {} samples of the task '{}' would be the same.",
                        file.string(), tasks[i].samples, tasks[i].name);
  }
}

}  // namespace

Suite read_suite(const fs::path& file, int64_t limit) {
  if (!is_file(file)) throw usage_error("there is no suite '{}'.", file.string());
  Suite suite{file.stem().string(), {}};
  fs::path folder = file.parent_path();
  const auto sections = read_yaml_entries(file);
  if (sections.contains("icl_tasks")) {
    const auto baselines = read_baselines(folder / "eval_meta_data.csv");
    for (const YamlEntry& entry : sections.at("icl_tasks"))
      suite.tasks.push_back(task_of(CoreTask(entry, file), baselines, file));
    folder /= "eval_data";
  } else {
    static const std::map<std::string, std::string> kForms{{"suite", "'key: value' lines"},
                                                           {"tasks", "'key: value' lines, a list of such"}};
    for (const auto& [name, entries] : sections) {
      const auto form = kForms.find(name);
      if (form == kForms.end())
        throw usage_error(
            "'{}': there is no section '{}'; a suite has a list `tasks` and may have defaults for them in "
            "`suite`.",
            file.string(), name);
      for (const YamlEntry& entry : entries)
        if (entry.size() == 1 && entry[0].key == name)
          throw usage_error("'{}', line {}: `{}` must hold {}.", file.string(), entry[0].line, name,
                            form->second);
    }
    const bool listed = sections.contains("tasks");
    for (const YamlEntry& entry : listed ? sections.at("tasks") : std::vector<YamlEntry>()) {
      SuiteTask& task = suite.tasks.emplace_back();
      Fields fields;
      task.describe(fields);
      if (sections.contains("suite"))
        for (const YamlEntry& defaults : sections.at("suite")) fill_fields(fields, defaults, file);
      fill_fields(fields, entry, file);
    }
  }
  check_tasks(suite.tasks, file);
  for (SuiteTask& task : suite.tasks) {
    task.resolve();
    read_problems(task, folder, limit);
  }
  return suite;
}

}  // namespace tightloop
