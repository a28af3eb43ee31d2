#include "data/render/chat_jinja.h"

#include "core/error.h"
#include "data/render/built_in_templates.h"
#include "tokenizer/jinja/template_files.h"

namespace tightloop {

namespace {

std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else {
      if (c == '\'' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + "'";
}

/// "<|user|>{content}<|end|>" with `content`, an expression, in its place.
std::string around(std::string form, const std::string& content) {
  if (const size_t end = form.find("{end}"); end != std::string::npos) form.erase(end, 5);
  const size_t at = form.find("{content}");
  return in_quotes(form.substr(0, at)) + " + " + content + " + " + in_quotes(form.substr(at + 9));
}

}  // namespace

std::string chat_jinja(const ChatConfig& config, const Tokenizer& tokenizer) {
  try {
    ChatTemplate(config, tokenizer);
  } catch (const Error&) {
    return {};
  }
  const ChatForm kind = resolve_form(config, tokenizer);
  const std::string whole =
      kind == ChatForm::kTemplate ? tokenizer.chat().choose(false) : built_in_template(kind);
  if (!whole.empty()) {
    if (config.system_prompt.empty()) return whole;
    return "{%- if messages[0]['role'] != 'system' %}{%- set messages = [{'role': 'system', 'content': " +
           in_quotes(config.system_prompt) + "}] + messages %}{%- endif %}" + whole;
  }
  const ChatSpelling form = chat_spelling(config, tokenizer);
  const std::string content = "message['content']", prompt = in_quotes(config.system_prompt);
  const bool joins = form.system.empty();
  std::string jinja;
  if (!form.begin.empty()) jinja += "{{ " + in_quotes(form.begin) + " }}";
  if (joins) {
    jinja += "{% set ns = namespace(joined=" + prompt + ") %}";
  } else if (!config.system_prompt.empty()) {
    jinja += "{% if messages[0]['role'] != 'system' %}{{ " + around(form.system, prompt) + " }}{% endif %}";
  }
  jinja += "{% for message in messages %}{% if message['role'] == 'system' %}";
  jinja += joins ? "{% set ns.joined = message['content'] %}" : "{{ " + around(form.system, content) + " }}";
  jinja += "{% elif message['role'] == 'assistant' %}{{ " + around(form.assistant, content) + " }}";
  const std::string tool = form.tool.empty() ? "raise_exception('the template has no turns of tools')"
                                             : around(form.tool, content);
  jinja += "{% elif message['role'] == 'tool' %}{{ " + tool + " }}{% else %}";
  if (joins) {
    jinja += "{{ " + around(form.user, "(ns.joined + '\\n\\n' if ns.joined else '') + " + content) +
             " }}{% set ns.joined = '' %}";
  } else {
    jinja += "{{ " + around(form.user, content) + " }}";
  }
  const std::string start = form.assistant.substr(0, form.assistant.find("{content}"));
  return jinja + "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ " + in_quotes(start) +
         " }}{% endif %}";
}

}  // namespace tightloop
