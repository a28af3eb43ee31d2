#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tightloop {

/// What nanochat's calculator answers, written as Python writes it ("5.0" for 10/2): sums, differences,
/// products and quotients (/ and //) of numbers with parentheses, commas left out; and how often a text is in
/// another, 'strawberry'.count('r'). Nothing else is evaluated, and no code is run. Nothing for an expression
/// that is none of these, holds **, divides by zero, is longer than 10,000 bytes or comes to an integer
/// beyond 2^126.
std::optional<std::string> calculate(std::string_view expression);

}  // namespace tightloop
