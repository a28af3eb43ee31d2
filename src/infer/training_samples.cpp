#include "infer/training_samples.h"
#include "infer/calculator_calls.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>

#include "core/error.h"
#include "data/read/line_reader.h"
#include "data/store/documents.h"
#include "infer/chat_session.h"
#include "infer/generate.h"
#include "infer/prompts.h"
#include "infer/translate.h"

namespace tightloop {

namespace {

/// Something to ask, as tokens, and all that is known of the sample before the model answers.
struct AskedSample {
  TrainingSample sample;
  std::vector<int32_t> ids{};
};

/// eval.prompts, and the lines of eval.prompts_file.
std::vector<std::string> given_prompts(const EvalConfig& eval) {
  constexpr uint64_t kLongestLine = 1 << 20;
  std::vector<std::string> prompts = eval.prompts;
  if (eval.prompts_file.empty()) return prompts;
  LineReader lines(eval.prompts_file, kLongestLine);
  for (auto status = lines.next(); status != LineReader::Status::kEnd; status = lines.next()) {
    if (status != LineReader::Status::kLine)
      throw data_error("'{}', line {} is too long for a prompt (eval.prompts_file).", eval.prompts_file,
                       lines.number());
    if (!lines.line().empty()) prompts.emplace_back(lines.line());
  }
  if (prompts.empty()) throw data_error("'{}' (eval.prompts_file) holds no prompt.", eval.prompts_file);
  return prompts;
}

/// Calls take(i), which says whether i serves, for numbers below `size` that are spread over all of them,
/// until `count` do.
template <class Take>
void take_spread(uint64_t size, int64_t count, const Take& take) {
  constexpr uint64_t kTried = 64;
  for (int64_t k = 0; k < count; ++k) {
    const auto bound = [&](int64_t part) {
      return size * static_cast<uint64_t>(part) / static_cast<uint64_t>(count);
    };
    for (uint64_t i = bound(k); i < std::min(bound(k + 1), bound(k) + kTried); ++i)
      if (take(i)) break;
  }
}

/// A language model, what it is asked and how it answers.
class LanguageSampler {
 public:
  LanguageSampler(Task& task, const Documents& held_out, const Recipe& recipe,
                  const std::vector<int32_t>& imported)
      : model_(task.language_model()),
        tokenizer_(task.tokenizer()),
        recipe_(recipe),
        chat_(chat_template(recipe.chat, tokenizer_)),
        stops_(stop_tokens(tokenizer_, chat_.get(), imported)) {
    const auto& eval = recipe.eval;
    const auto prompts = given_prompts(eval);
    // Held-out questions also tell how prompts are to be asked.
    take_spread(held_out.size(), prompts.empty() ? eval.samples : 1,
                [&](uint64_t document) { return add_held_out(held_out, document); });
    if (prompts.empty()) return;
    const bool conversation = chat_ && converses_;
    const SampleKind kind = asked_.empty() ? SampleKind::kContinuation : asked_.front().sample.kind;
    asked_.clear();
    for (const std::string& prompt : prompts)
      asked_.push_back({{.kind = kind, .prompt = prompt},
                        conversation ? question_ids(prompt)
                                     : text_prompt(prompt, tokenizer_, longest_prompt(model_.config())).ids});
  }

  bool empty() const { return asked_.empty(); }

  std::vector<TrainingSample> answer() const {
    const auto& eval = recipe_.eval;
    GenerateOptions how;
    how.sampling.max_tokens = eval.sample_tokens, how.sampling.temperature = eval.temperature;
    how.sampling.top_k = eval.top_k, how.sampling.top_p = eval.top_p, how.sampling.seed = recipe_.train.seed;
    how.stop_tokens = stops_, how.vocab_size = tokenizer_.vocab_size();
    how.calculator = &calculator_, how.graphs = false;
    std::vector<Prompt> prompts;
    for (const auto& asked : asked_) prompts.push_back({.ids = asked.ids});
    constexpr size_t kRows = 16;
    const auto answers = generate(model_, prompts, how, kRows);
    std::vector<TrainingSample> samples;
    for (size_t i = 0; i < asked_.size(); ++i) {
      samples.push_back(asked_[i].sample);
      samples.back().text = tokenizer_.decode(answers[i].ids);
    }
    return samples;
  }

 private:
  std::vector<int32_t> question_ids(const std::string& text) const {
    if (const auto token = chat_->smuggled_token(text); !token.empty())
      throw data_error(
          "a prompt (eval.prompts) holds '{}', a control token that this tokenizer cannot spell out.", token);
    check_length(text, longest_prompt(model_.config()));
    const Message question{Role::kUser, text};
    return chat_->prompt(std::span(&question, 1));
  }

  /// Text up to what ends it, of at most so many tokens.
  std::string text_of(std::span<const int32_t> ids) const {
    ids = ids.first(std::min<size_t>(ids.size(), static_cast<size_t>(recipe_.eval.sample_tokens)));
    const auto end =
        std::ranges::find_if(ids, [&](int32_t id) { return std::ranges::count(stops_, id) > 0; });
    return tokenizer_.decode(ids.first(static_cast<size_t>(end - ids.begin())));
  }

  /// What is only read before something is to be learned is a question; of a text that is learned as a whole
  /// the first tokens are to be continued.
  bool add_held_out(const Documents& documents, uint64_t number) {
    constexpr int64_t kBegin = 16, kLeast = 4;
    const auto longest = static_cast<uint64_t>(
        std::min(longest_prompt(model_.config()), std::max<int64_t>(model_.config().context, kLeast)));
    const uint64_t length = std::min(documents.length(number), longest);
    if (length < kLeast) return false;
    std::vector<int32_t> ids(length);
    std::vector<uint8_t> mask(length);
    documents.read(documents.begin(number), length, ids.data());
    documents.read_mask(documents.begin(number), length, mask.data());
    int64_t asked = std::ranges::find(mask, uint8_t{1}) - mask.begin();
    if (asked == static_cast<int64_t>(length)) return false;
    const bool question = asked > 1;  // one token marks the beginning of any text
    if (!question) asked = std::min<int64_t>(kBegin, static_cast<int64_t>(length) / 2);
    const std::span<const int32_t> all(ids);
    AskedSample& added = asked_.emplace_back();
    added.ids.assign(ids.begin(), ids.begin() + asked);
    TrainingSample& sample = added.sample;
    sample.kind = question ? SampleKind::kAnswer : SampleKind::kContinuation;
    const std::string shown = tokenizer_.decode(added.ids);
    sample.prompt = question ? plain_question(shown, recipe_.chat, tokenizer_) : shown;
    converses_ = converses_ || sample.prompt != shown;
    sample.reference = text_of(all.subspan(static_cast<size_t>(asked)));
    return true;
  }

  LanguageModel& model_;
  const Tokenizer& tokenizer_;
  const Recipe& recipe_;
  std::unique_ptr<ChatTemplate> chat_;
  std::vector<int32_t> stops_;
  const CalculatorCalls calculator_{tokenizer_};
  std::vector<AskedSample> asked_;
  bool converses_ = false;  // held-out questions are turns of a conversation
};

std::string sentence_of(const Documents& pairs, uint64_t document, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids(pairs.length(document));
  pairs.read(pairs.begin(document), ids.size(), ids.data());
  if (ids.size() < 2) return {};
  return tokenizer.decode(std::span<const int32_t>(ids).subspan(1, ids.size() - 2));  // without its marks
}

std::function<std::vector<TrainingSample>()> translation_sampler(const HeldOutPairs& held_out,
                                                                 const EvalConfig& eval) {
  std::vector<TrainingSample> asked;
  for (std::string& prompt : given_prompts(eval))
    asked.push_back({.kind = SampleKind::kTranslation, .prompt = std::move(prompt)});
  if (asked.empty())
    take_spread(held_out.pairs.size() / 2, eval.samples, [&](uint64_t pair) {
      asked.push_back({.kind = SampleKind::kTranslation,
                       .prompt = sentence_of(held_out.pairs, 2 * pair, *held_out.tokenizers.source),
                       .reference = sentence_of(held_out.pairs, 2 * pair + 1, held_out.target)});
      return true;
    });
  if (asked.empty()) return {};
  return [held_out, asked, most = eval.sample_tokens] {
    std::vector<std::string> lines;
    for (const auto& sample : asked) lines.push_back(sample.prompt);
    TranslateOptions how;
    how.decode.beam = 1, how.decode.extra_tokens = std::min(how.decode.extra_tokens, most);
    const auto found = translate(held_out.model, held_out.tokenizers, lines, how);
    auto samples = asked;
    for (size_t i = 0; i < samples.size(); ++i)
      if (!found[i].empty()) samples[i].text = found[i].front().text;
    return samples;
  };
}

}  // namespace

std::function<std::vector<TrainingSample>()> training_sampler(Task& task, const Recipe& recipe,
                                                              const std::vector<int32_t>& imported) {
  if (const auto pairs = task.held_out_pairs()) return translation_sampler(*pairs, recipe.eval);
  const Documents* documents = task.held_out_documents();
  if (!documents) return {};  // random ids are no text
  const auto sampler = std::make_shared<const LanguageSampler>(task, *documents, recipe, imported);
  if (sampler->empty()) return {};
  return [sampler] { return sampler->answer(); };
}

}  // namespace tightloop
