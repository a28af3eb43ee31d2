#include "data/render/chat_jinja.h"

#include "core/error.h"
#include "data/render/built_in_templates.h"
#include "tokenizer/jinja/template_files.h"

namespace tightloop {

namespace {

// As records may call them (data/render/json_messages.cpp).
const std::string kSystemRoles = "['system', 'developer']";
constexpr const char* kToolRoles = "['tool', 'function', 'observation', 'ipython']";

std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\n' || c == '\r') {
      out += c == '\n' ? "\\n" : "\\r";  // as they are, both would be line ends
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

/// A template that puts a prompt before conversations without one. What it begins with stays at the beginning
/// of a line, where white space before a tag is left out.
std::string with_prompt(const std::string& jinja, const std::string& prompt) {
  if (prompt.empty()) return jinja;
  return "{%- if messages[0]['role'] not in " + kSystemRoles +
         " %}{%- set messages = [{'role': 'system', 'content': " + in_quotes(prompt) +
         "}] + messages %}{%- endif %}\n" + jinja;
}

std::string spelled_jinja(const ChatConfig& config, const Tokenizer& tokenizer) {
  const ChatSpelling form = chat_spelling(config, tokenizer);
  const std::string content = "message['content']", prompt = in_quotes(config.system_prompt);
  const bool joins = form.system.empty();
  std::string jinja;
  if (!form.begin.empty()) jinja += "{{ " + in_quotes(form.begin) + " }}";
  if (joins) {
    jinja += "{% set ns = namespace(joined=" + prompt + ") %}";
  } else if (!config.system_prompt.empty()) {
    jinja += "{% if messages[0]['role'] not in " + kSystemRoles + " %}{{ " + around(form.system, prompt) +
             " }}{% endif %}";
  }
  jinja += "{% for message in messages %}{% if message['role'] in " + kSystemRoles + " %}";
  jinja += joins ? "{% set ns.joined = message['content'] %}" : "{{ " + around(form.system, content) + " }}";
  jinja += "{% elif message['role'] == 'assistant' %}{{ " + around(form.assistant, content) + " }}";
  const std::string tool = form.tool.empty() ? "raise_exception('the template has no turns of tools')"
                                             : around(form.tool, content);
  jinja += fmt::format("{{% elif message['role'] in {} %}}{{{{ {} }}}}", kToolRoles, tool);
  jinja += "{% elif message['role'] == 'user' %}";
  if (joins) {
    jinja += "{{ " + around(form.user, "(ns.joined + '\\n\\n' if ns.joined else '') + " + content) +
             " }}{% set ns.joined = '' %}";
  } else {
    jinja += "{{ " + around(form.user, content) + " }}";
  }
  const std::string start = form.assistant.substr(0, form.assistant.find("{content}"));
  jinja += "{% else %}{{ raise_exception('unknown role ' ~ message['role']) }}";
  return jinja + "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ " + in_quotes(start) +
         " }}{% endif %}";
}

}  // namespace

std::map<std::string, std::string> chat_jinja(const ChatConfig& config, const Tokenizer& tokenizer) {
  try {
    ChatTemplate(config, tokenizer);
  } catch (const Error&) {
    return {};
  }
  const ChatForm kind = resolve_form(config, tokenizer);
  std::map<std::string, std::string> templates;
  if (kind == ChatForm::kTemplate) templates = tokenizer.chat().templates;
  if (const std::string whole = built_in_template(kind); !whole.empty()) templates["default"] = whole;
  for (auto& [name, jinja] : templates) jinja = with_prompt(jinja, config.system_prompt);
  if (templates.empty()) templates["default"] = spelled_jinja(config, tokenizer);
  return templates;
}

}  // namespace tightloop
