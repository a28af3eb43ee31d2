#pragma once

#include <string>
#include <vector>

#include "tokenizer/jinja/template_files.h"

namespace tightloop {

/// How quickly conversations that have been read are written as texts, by one template.
struct ChatSpeed {
  struct Way {
    double a_second = 0;          // conversations, by all threads together; 0: this way there is not
    double cpu_microseconds = 0;  // of one conversation
  };
  Way interpreted;
  Way quick;  // by the built-in form, where the template is a known one
};
/// Each record, an object with `messages`, again and again for about so long.
ChatSpeed measure_chat(const ChatTemplateFiles& files, const std::vector<std::string>& records, int threads,
                       double seconds);

}  // namespace tightloop
