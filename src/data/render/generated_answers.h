#pragma once

#include <span>

#include "data/render/chat_text.h"
#include "tokenizer/jinja/jinja_template.h"

namespace tightloop {

// What {% generation %} says of a rendered conversation, as answers of `out`, whose text is there.

/// The blocks of one turn. Inside of a macro a block is not where transformers takes it to be: there its text
/// is looked for, `header` bytes behind the turn's beginning. False where it is not found.
bool add_generated(const JinjaTemplate::Rendering& made, const JinjaTemplate::Rendering::Turn& turn,
                   size_t header, size_t message, ChatText& out);

/// All blocks, where no loop over the messages wrote them: the first belongs to the first of `assistants`.
void add_generated_in_order(const JinjaTemplate::Rendering& made, std::span<const size_t> assistants,
                            ChatText& out);

}  // namespace tightloop
