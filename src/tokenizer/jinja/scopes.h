#pragma once

#include <string>

#include "tokenizer/jinja/syntax.h"

namespace tightloop::jinja {

/// Decides of every name in a tree which variable it is, and how each scope's variables begin. jinja2 settles
/// this before anything runs, which templates can notice: a variable that is set anywhere in a scope hides an
/// outer one there, for loops and macros inside it, too. Throws SyntaxFault, for unknown filters and tests
/// and for a break outside of a loop as well.
void resolve_names(SyntaxTree& tree);

}  // namespace tightloop::jinja
