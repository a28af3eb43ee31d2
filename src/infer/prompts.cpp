#include "infer/prompts.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/io/json_depth.h"
#include "data/read/line_reader.h"

namespace tightloop {

namespace {

constexpr uint64_t kLongestLine = uint64_t{1} << 26;

TextPrompt json_prompt(std::string_view line, const Tokenizer& tokenizer, int64_t longest,
                       const std::string& where) {
  const auto json = nlohmann::json::parse(shallow_json(line), nullptr, /*allow_exceptions=*/false);
  if (json.is_string()) return text_prompt(json.get<std::string>(), tokenizer, longest);
  if (json.is_object() && json.contains("prompt") && json["prompt"].is_string())
    return text_prompt(json["prompt"].get<std::string>(), tokenizer, longest);
  if (json.is_object() && json.contains("ids")) return ids_prompt(json["ids"].dump(), tokenizer);
  throw data_error("{}: a prompt is {{\"prompt\": \"text\"}}, {{\"ids\": [1, 2]}} or a JSON string.", where);
}

}  // namespace

void check_length(std::string_view text, int64_t longest) {
  const auto least = static_cast<int64_t>(text.size()) / kMostTokenBytes;
  if (least <= longest) return;
  throw usage_error("a text of {} bytes does not fit into the {} tokens that the model can read. Shorten it.",
                    text.size(), longest);
}

TextPrompt text_prompt(std::string text, const Tokenizer& tokenizer, int64_t longest) {
  check_length(text, longest);
  auto ids = tokenizer.encode(text);
  if (static_cast<int64_t>(ids.size()) > longest)
    throw usage_error("a prompt of {} tokens is too long for the model, which reads {} at most. Shorten it.",
                      ids.size(), longest);
  if (ids.empty()) ids.push_back(tokenizer.end_of_text());
  return {std::move(text), std::move(ids)};
}

TextPrompt ids_prompt(std::string_view text, const Tokenizer& tokenizer) {
  TextPrompt prompt;
  for (size_t at = 0; (at = text.find_first_not_of(", []", at)) != text.npos;) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), id);
    const auto next = static_cast<size_t>(end - text.data());
    if (error != std::errc() ||
        (next < text.size() && std::string_view(", []").find(text[next]) == text.npos))
      throw usage_error("'{}' is not a list of token ids, such as 1,2,3.", text);
    prompt.ids.push_back(id);
    at = next;
  }
  if (prompt.ids.empty()) throw usage_error("'{}' is not a list of token ids, such as 1,2,3.", text);
  prompt.text = tokenizer.decode(prompt.ids);
  return prompt;
}

std::vector<TextPrompt> read_prompts(const std::filesystem::path& file, const Tokenizer& tokenizer,
                                     int64_t longest) {
  const bool json = file.extension() == ".jsonl";
  std::vector<TextPrompt> prompts;
  LineReader lines(file, kLongestLine);
  for (auto status = lines.next(); status != LineReader::Status::kEnd; status = lines.next()) {
    const std::string where = fmt::format("'{}', line {}", file.string(), lines.number());
    if (status != LineReader::Status::kLine) throw data_error("{} cannot be read.", where);
    if (json && lines.line().empty()) continue;
    throw_if_interrupted();
    prompts.push_back(json ? json_prompt(lines.line(), tokenizer, longest, where)
                           : text_prompt(std::string(lines.line()), tokenizer, longest));
  }
  if (prompts.empty()) throw data_error("'{}' holds no prompt.", file.string());
  return prompts;
}

}  // namespace tightloop
