#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace tightloop {

/// A value of an enum as users write it, and what it means where the name alone does not say it.
template <class Enum>
struct Choice {
  Enum value;
  std::string_view name, help{};
};

/// Every enum that users choose from has one table, beside it. Settings, options of verbs, messages and the
/// documentation take the names from there:
///
///     enum class RowKind { kStream, kPad };
///     template <>
///     inline constexpr auto kChoices<RowKind> = std::to_array<Choice<RowKind>>(
///         {{RowKind::kStream, "stream", "one token stream, cut"}, {RowKind::kPad, "pad"}});
template <class Enum>
inline constexpr std::array<Choice<Enum>, 0> kChoices{};

/// The name of a value; empty for one that users cannot choose.
template <class Enum>
constexpr std::string_view name_of(Enum value) {
  for (const Choice<Enum>& choice : kChoices<Enum>)
    if (choice.value == value) return choice.name;
  return {};
}

/// The value of a name.
template <class Enum>
constexpr std::optional<Enum> choice_named(std::string_view name) {
  for (const Choice<Enum>& choice : kChoices<Enum>)
    if (choice.name == name) return choice.value;
  return std::nullopt;
}

/// Whether a value is one of these.
template <class Enum>
constexpr bool is_one_of(Enum value, std::initializer_list<Enum> values) {
  return std::ranges::find(values, value) != values.end();
}

}  // namespace tightloop
