#include "data/render/built_in_templates.h"

namespace tightloop {

namespace {

// What Qwen 2.5, Qwen 3 and MiniMind tell a model of its tools.
constexpr const char* kQwenTools = R"J({%- if tools %}
{{- '<|im_start|>system\n' ~ (opening ~ '\n\n' if opening is not none else '') }}
{{- '# Tools\n\nYou may call one or more functions to assist with the user query.\n\n' }}
{{- 'You are provided with function signatures within <tools></tools> XML tags:\n<tools>' }}
{%- for tool in tools %}{{- '\n' ~ tool | tojson }}{%- endfor %}
{{- '\n</tools>\n\nFor each function call, return a json object with function name and arguments within ' }}
{{- '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": ' }}
{{- '<args-json-object>}\n</tool_call><|im_end|>\n' }}
{%- elif opening is not none %}
{{- '<|im_start|>system\n' ~ opening ~ '<|im_end|>\n' }}
{%- endif %}
)J";

constexpr const char* kQwenCalls = R"J(
{%- for call in message.tool_calls or [] %}
{%- set function = call.function or call %}
{{- '\n' if said or not loop.first else '' }}
{{- '<tool_call>\n{"name": "' ~ function.name ~ '", "arguments": ' }}
{{- function.arguments if function.arguments is string else function.arguments | tojson }}
{{- '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
)J";

std::string qwen_template(bool minimind) {
  const std::string is_text = minimind ? "message.content is string and " : "";
  const std::string content =
      minimind ? "(message.content if message.content is string else '')" : "message.content";
  const std::string has_thought =
      minimind ? "message.reasoning_content is string"
               : "message.reasoning_content is defined and message.reasoning_content is not none";
  return "{%- set opening = messages[0].content if messages[0].role == 'system' else none %}\n" +
         std::string(kQwenTools) +
         // Thinking is kept behind the last question alone.
         "{%- set question = namespace(at=messages | length - 1) %}\n"
         "{%- for message in messages %}\n"
         "{%- if message.role == 'user' and " +
         is_text +
         "not (message.content.startswith('<tool_response>') and "
         "message.content.endswith('</tool_response>')) %}\n"
         "{%- set question.at = loop.index0 %}\n"
         "{%- endif %}\n"
         "{%- endfor %}\n"
         "{%- for message in messages %}\n"
         "{%- set said = " +
         content +
         " %}\n"
         "{%- if message.role == 'assistant' %}\n"
         "{%- set thought = '' %}\n"
         "{%- if " +
         has_thought +
         " %}\n"
         "{%- set thought = message.reasoning_content %}\n"
         "{%- elif '</think>' in said %}\n"
         "{%- set parts = said.split('</think>') %}\n"
         "{%- set thought = parts[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}\n"
         "{%- set said = parts[-1].lstrip('\\n') %}\n"
         "{%- endif %}\n"
         "{{- '<|im_start|>assistant\\n' }}\n" +
         (minimind ? std::string("{%- if true %}\n")
                   : "{%- if loop.index0 > question.at and (loop.last or thought) %}\n") +
         "{{- '<think>\\n' ~ thought.strip('\\n') ~ '\\n</think>\\n\\n' ~ said.lstrip('\\n') }}\n"
         "{%- else %}\n"
         "{{- said }}\n"
         "{%- endif %}" +
         kQwenCalls +
         "{%- elif message.role == 'tool' %}\n"
         "{{- '' if loop.previtem is defined and loop.previtem.role == 'tool' else '<|im_start|>user' }}\n"
         "{{- '\\n<tool_response>\\n' ~ said ~ '\\n</tool_response>' }}\n"
         "{{- '' if loop.nextitem is defined and loop.nextitem.role == 'tool' else '<|im_end|>\\n' }}\n"
         "{%- elif message.role == 'user' or (message.role == 'system' and not loop.first) %}\n"
         "{{- '<|im_start|>' ~ message.role ~ '\\n' ~ said ~ '<|im_end|>\\n' }}\n"
         "{%- endif %}\n"
         "{%- endfor %}\n"
         "{%- if add_generation_prompt %}\n"
         "{{- '<|im_start|>assistant\\n' }}\n" +
         (minimind ? "{{- '<think>\\n' if open_thinking is true else '<think>\\n\\n</think>\\n\\n' }}\n"
                   : "{{- '<think>\\n\\n</think>\\n\\n' if enable_thinking is false else '' }}\n") +
         "{%- endif %}";
}

constexpr const char* kLlama3 = R"J({{- '<|begin_of_text|>' }}
{%- set talk = messages[1:] if messages[0].role == 'system' else messages %}
{%- set opening = messages[0].content | trim if messages[0].role == 'system' else '' %}
{%- set asks = 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.Do not use variables.\n\n' %}
{%- set in_user_turn = tools is not none and (tools_in_user_message is not defined or tools_in_user_message) %}
{{- '<|start_header_id|>system<|end_header_id|>\n\n' ~ ('Environment: ipython\n' if tools is not none else '') }}
{{- 'Cutting Knowledge Date: December 2023\nToday Date: ' ~ (date_string if date_string is defined else '26 Jul 2024') ~ '\n\n' }}
{%- if tools is not none and not in_user_turn %}
{{- 'You have access to the following functions. To call a function, please respond with JSON for a function call.' ~ asks }}
{%- for tool in tools %}{{- tool | tojson(indent=4) ~ '\n\n' }}{%- endfor %}
{%- endif %}
{{- opening ~ '<|eot_id|>' }}
{%- if in_user_turn %}
{%- if not talk %}{{- raise_exception('the tools stand in the first turn of the user, and there is none') }}{%- endif %}
{{- '<|start_header_id|>user<|end_header_id|>\n\nGiven the following functions, please respond with a JSON for a function call ' }}
{{- 'with its proper arguments that best answers the given prompt.\n\n' ~ asks }}
{%- for tool in tools %}{{- tool | tojson(indent=4) ~ '\n\n' }}{%- endfor %}
{{- talk[0].content | trim ~ '<|eot_id|>' }}
{%- set talk = talk[1:] %}
{%- endif %}
{%- for message in talk %}
{%- if 'tool_calls' in message %}
{%- if message.tool_calls | length != 1 %}{{- raise_exception('one call of a tool at a time') }}{%- endif %}
{%- set function = message.tool_calls[0].function %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "' ~ function.name ~ '", "parameters": ' ~ function.arguments | tojson ~ '}' }}
{%- elif message.role in ['tool', 'ipython'] %}
{{- '<|start_header_id|>ipython<|end_header_id|>\n\n' }}
{{- message.content | tojson if message.content is iterable else message.content }}
{%- else %}
{{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' ~ message.content | trim }}
{%- endif %}
{{- '<|eot_id|>' }}
{%- endfor %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' if add_generation_prompt else '' }})J";

}  // namespace

std::string built_in_template(ChatForm form) {
  switch (form) {
    case ChatForm::kMinimind:
      return qwen_template(true);
    case ChatForm::kQwen3:
      return qwen_template(false);
    case ChatForm::kLlama3:
      return kLlama3;
    case ChatForm::kAuto:
    case ChatForm::kTemplate:
    case ChatForm::kChatml:
    case ChatForm::kNanochat:
    case ChatForm::kOwn:
      break;
  }
  return {};
}

}  // namespace tightloop
