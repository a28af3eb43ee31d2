#include "data/render/render.h"

#include <simdjson.h>

#include "core/error.h"

namespace tightloop {

void Rendered::clear() {
  ids.clear();
  mask.clear();
  second.clear();
  cuts.clear();
  text.clear();
  bad = BadKind::kNone;
  why.clear();
}

void Renderer::render(const Record& record, Rendered& out) const {
  out.clear();
  try {
    if (record.bad != BadKind::kNone) throw BadRecord{record.bad, std::string(record.bytes)};
    make(record, out);
  } catch (const BadRecord& bad) {
    out.clear();
    out.bad = bad.kind;
    out.why = bad.why;
  }
}

void demand_text(std::string_view bytes) {
  const bool nul = bytes.find('\0') != bytes.npos;
  const bool marked = bytes.starts_with("\xff\xfe") || bytes.starts_with("\xfe\xff");
  if (!simdjson::validate_utf8(bytes.data(), bytes.size()))
    throw BadRecord{BadKind::kInvalidUtf8,
                    marked ? "this is UTF-16: convert the file to UTF-8" : "not UTF-8 text"};
  if (nul) throw BadRecord{BadKind::kNulByte, "a NUL byte in it: is this a text file, or UTF-16?"};
}

TextMarks::TextMarks(const DataConfig& config, const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), end_of_text_(config.end_token == "auto") {
  const auto token = [&](const std::string& name, const char* setting) {
    if (const auto id = tokenizer.token_id(name)) return *id;
    throw usage_error("{} is '{}', and the tokenizer has no such token.", setting, name);
  };
  if (config.begin_token != "none") begin_ = token(config.begin_token, "data.begin_token");
  if (!end_of_text_ && config.end_token != "none") end_ = token(config.end_token, "data.end_token");
}

void render_text(std::string_view text, const std::string& loss_after, const Tokenizer& tokenizer,
                 const TextMarks& marks, Rendered& out) {
  if (text.empty()) throw BadRecord{BadKind::kEmpty, "the text is empty"};
  if (marks.begin() >= 0) out.ids.push_back(marks.begin());
  if (loss_after.empty()) {
    tokenizer.encode(text, out.ids);
  } else {
    const size_t found = text.find(loss_after);
    if (found == text.npos)
      throw BadRecord{BadKind::kNothingToLearn, fmt::format("no '{}' in it", loss_after)};
    // Prompt and answer are encoded apart, as they will be when the model is asked.
    const size_t prompt = found + loss_after.size();
    tokenizer.encode(text.substr(0, prompt), out.ids);
    out.mask.assign(out.ids.size(), 0);
    tokenizer.encode(text.substr(prompt), out.ids);
  }
  if (marks.end() >= 0) out.ids.push_back(marks.end());
  if (!loss_after.empty()) out.mask.resize(out.ids.size(), 1);
}

namespace {

class TextRenderer : public Renderer {
 public:
  TextRenderer(const DataConfig& config, const Tokenizer& tokenizer)
      : loss_after_(config.loss_after), tokenizer_(tokenizer), marks_(config, tokenizer) {}
  std::optional<std::string_view> plain_text(const Record& record) const override {
    if ((record.first && !loss_after_.empty()) || !marks_.plain()) return std::nullopt;
    return record.bytes;
  }

 protected:
  void make(const Record& record, Rendered& out) const override {
    const std::string_view text = record.bytes;
    demand_text(text);
    if (record.first && record.last) return render_text(text, loss_after_, tokenizer_, marks_, out);
    // A piece of a long document. Its prompt, if any, is taken to be in the first one.
    if (record.first && !loss_after_.empty()) {
      render_text(text, loss_after_, tokenizer_, marks_, out);
      if (marks_.end() >= 0) out.ids.pop_back(), out.mask.pop_back();
      return;
    }
    if (record.first && marks_.begin() >= 0) out.ids.push_back(marks_.begin());
    tokenizer_.encode(text, out.ids);
    if (record.last && marks_.end() >= 0) out.ids.push_back(marks_.end());
  }

 private:
  std::string loss_after_;
  const Tokenizer& tokenizer_;
  const TextMarks marks_;
};

}  // namespace

std::unique_ptr<Renderer> make_text_renderer(const DataConfig& config, const Tokenizer& tokenizer) {
  return std::make_unique<TextRenderer>(config, tokenizer);
}

}  // namespace tightloop
