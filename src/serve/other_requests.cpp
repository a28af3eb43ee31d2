// Requests that are answered in one go: scores, embeddings, translations.
#include <fmt/format.h>

#include <atomic>
#include <exception>
#include <memory>

#include "serve/api/answer_json.h"
#include "serve/api/fields.h"
#include "serve/measures.h"
#include "serve/prompts_of.h"
#include "serve/server.h"

namespace tightloop::serve {

namespace {

/// Texts, or token ids, as /v1/embeddings takes them.
std::vector<std::variant<std::string, std::vector<int32_t>>> read_inputs(const OrderedJson& body,
                                                                         size_t most) {
  OrderedJson as_prompt{{"prompt", body.contains("input") ? body["input"] : OrderedJson()}};
  try {
    return read_text_request(as_prompt, {.choices = static_cast<int64_t>(most)}).prompts;
  } catch (ApiError& error) {
    for (size_t at = 0; (at = error.message.find("prompt", at)) != std::string::npos; at += 5)
      error.message.replace(at, 6, "input");
    error.param = "input";
    throw;
  }
}

struct EmbeddingJob {
  std::vector<std::vector<int32_t>> texts;
  bool plain = true;  // numbers, not base64
  nlohmann::json data = nlohmann::json::array();
  std::shared_ptr<std::atomic<bool>> wanted = std::make_shared<std::atomic<bool>>(true);
  std::function<void(HttpReply)> done{};
};

/// One text, so that answers go on between two.
void embed_next(ServedModel& model, const std::shared_ptr<EmbeddingJob>& job) {
  model.call([&model, job](LanguageModel& language_model) {
    if (!*job->wanted) return job->done({});
    const size_t at = job->data.size();
    try {
      const auto state = mean_state(language_model, job->texts[at]);
      job->data.push_back(
          {{"object", "embedding"},
           {"index", at},
           {"embedding", job->plain ? nlohmann::json(state) : nlohmann::json(base64(state))}});
    } catch (const std::exception&) {
      return job->done(reply_of(std::current_exception()));
    }
    if (*job->wanted && job->data.size() < job->texts.size()) return embed_next(model, job);
    job->done({});
  });
}

}  // namespace

void Server::score(const Asked& asked) {
  prepare(asked, [this, asked]() -> std::function<void()> {
    const auto body = read_json_body(asked->call().body);
    FieldReader fields(body);
    const std::string text = fields.required_text("text");
    ServedModel& model = model_named(fields.text("model").value_or(""));
    fields.refuse_unknown();
    auto prompt = read_prompt(model, text, longest_of(model, config_.prompt_tokens), "text");
    return [this, asked, &model, ids = std::move(prompt.ids), bytes = text.size()] {
      const auto wanted = std::make_shared<std::atomic<bool>>(true);
      asked->model = model.name();
      wait_for(asked, wanted);
      model.call([this, asked, &model, ids, bytes, wanted](LanguageModel& language_model) {
        if (!*wanted) return;
        HttpReply reply;
        try {
          auto json = score_json(language_model, model.tokenizer(), ids, bytes);
          json["model"] = model.name();
          reply.body = json_text(json) + "\n";
        } catch (const std::exception&) {
          reply = reply_of(std::current_exception());
        }
        http_.post([asked, reply = std::move(reply)] { asked->reply(reply); });
      });
    };
  });
}

void Server::embed(const Asked& asked) {
  prepare(asked, [this, asked]() -> std::function<void()> {
    const auto body = read_json_body(asked->call().body);
    FieldReader fields(body);
    ServedModel& model = model_named(fields.text("model").value_or(""));
    const auto inputs = read_inputs(body, static_cast<size_t>(config_.lines));
    const std::string format = fields.text("encoding_format").value_or("float");
    if (format != "float" && format != "base64")
      throw wrong_field("encoding_format", "'encoding_format' must be \"float\" or \"base64\".");
    fields.ignore({"input", "user"});
    fields.refuse("dimensions", {}, "embeddings are as wide as the model.");
    fields.refuse_unknown();
    std::vector<std::vector<int32_t>> all;
    int64_t tokens = 0;
    for (const auto& input : inputs) {
      all.push_back(read_prompt(model, input, longest_of(model, config_.prompt_tokens), "input").ids);
      tokens += static_cast<int64_t>(all.back().size());
    }
    const auto job = std::make_shared<EmbeddingJob>();
    job->texts = std::move(all);
    job->plain = format == "float";
    job->done = [this, asked, job = job.get(), name = model.name(), tokens](HttpReply reply) {
      if (reply.status == 200)
        reply.body = json_text({{"object", "list"},
                                {"data", std::move(job->data)},
                                {"model", name},
                                {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}});
      http_.post([asked, reply = std::move(reply)] { asked->reply(reply); });
    };
    return [this, asked, &model, job] {
      asked->model = model.name();
      wait_for(asked, job->wanted);
      embed_next(model, job);
    };
  });
}

void Server::translate(const Asked& asked) {
  prepare(asked, [this, asked]() -> std::function<void()> {
    const auto body = read_json_body(asked->call().body);
    FieldReader fields(body);
    ServedTranslator& translator = translator_named(fields.text("model").value_or(""));
    TranslationJob job;
    job.lines = fields.texts("text", static_cast<size_t>(config_.lines));
    if (!fields.find("text"))
      throw ApiError{.message = "'text' is missing.", .param = "text", .code = "missing_required_parameter"};
    for (const auto& line : job.lines)
      if (const size_t end = line.find_last_not_of(" \t\r\n"); end != line.npos && line.find('\n') < end)
        throw wrong_field(
            "text",
            "a text has several lines, and would be translated as one sentence: give each line as "
            "a text of its own, {{\"text\": [\"...\", \"...\"]}}.");
    job.decode.beam =
        fields.integer("beam", 1, config_.beam).value_or(std::min<int64_t>(job.decode.beam, config_.beam));
    job.decode.nbest = fields.integer("nbest", 1, job.decode.beam).value_or(1);
    job.decode.length_penalty = fields.number("length_penalty", job.decode.length_penalty, 0, 10);
    fields.refuse_unknown();
    const auto wanted = std::make_shared<std::atomic<bool>>(true);
    job.wanted = [wanted] { return wanted->load(); };
    job.done = [this, asked, name = translator.name()](const std::vector<TranslatedLine>& lines,
                                                       const std::exception_ptr& failure) {
      HttpReply reply;
      try {
        if (failure) std::rethrow_exception(failure);
        nlohmann::json list = nlohmann::json::array();
        for (const auto& [found, cut] : lines) {
          nlohmann::json one{{"text", found.empty() ? "" : found[0].text},
                             {"score", found.empty() ? 0 : found[0].score}};
          for (size_t i = 1; i < found.size(); ++i)
            one["others"].push_back({{"text", found[i].text}, {"score", found[i].score}});
          if (cut) one["cut"] = true;
          list.push_back(std::move(one));
        }
        reply.body = json_text({{"model", name}, {"translations", std::move(list)}}) + "\n";
      } catch (const std::exception&) {
        reply = reply_of(std::current_exception());
      }
      http_.post([asked, reply = std::move(reply)] { asked->reply(reply); });
    };
    return [this, asked, &translator, wanted, job = std::move(job)]() mutable {
      asked->model = translator.name();
      wait_for(asked, wanted);
      translator.submit(std::move(job));
    };
  });
}

}  // namespace tightloop::serve
