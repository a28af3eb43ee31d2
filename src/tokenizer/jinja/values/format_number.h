#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tokenizer/jinja/values/run.h"

namespace tightloop::jinja {

/// Digits of a float's size (its sign is left out) as printf's e, f or g; `alternate` keeps point and zeros.
std::string float_digits(Run& run, double value, char kind, int64_t precision, bool alternate);
/// Digits of an integer's size in base 2, 8, 10 or 16, without sign and prefix.
std::string integer_digits(int64_t value, int base, bool upper);
/// Brings a text to a width with `fill` on the side(s) that `align` (< > ^) says.
std::string aligned(Run& run, std::string_view text, int64_t width, char align, std::string_view fill = " ");
/// How many code points a text has.
int64_t points_of(std::string_view text);

}  // namespace tightloop::jinja
