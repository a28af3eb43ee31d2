#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tightloop {

enum class Role : uint8_t { kSystem, kUser, kAssistant, kTool };
/// "system", "user", "assistant", "tool".
std::string_view role_name(Role role);

/// A turn of a conversation, or a part of one: `opens` and `closes` tell whether the turn begins and ends
/// here. Code that the assistant runs is learned like its words; what the code printed is only read.
struct Message {
  enum class Part : uint8_t { kText, kCode, kOutput };

  Role role = Role::kUser;
  std::string_view text{};
  Part part = Part::kText;
  bool opens = true, closes = true;

  // What templates of models read besides.
  std::string_view called{};                   // the role as the record names it; empty: role_name(role)
  std::optional<std::string_view> thinking{};  // reasoning_content
  std::string_view content{};  // JSON, where it is no text: a list of parts, null; "absent": there is none
  std::string_view fields{};   // other fields that say something: a JSON object, or empty
  std::string_view field_names{};  // of those that may not be lost, each with a NUL behind it
};

/// What a record says. The views are valid as long as the record's reader says.
struct Conversation {
  Conversation() = default;
  Conversation(std::span<const Message> turns) : messages(turns) {}
  Conversation(const std::vector<Message>& turns) : messages(turns) {}

  std::span<const Message> messages{};
  std::string_view tools{};      // a JSON list; empty: none
  std::string_view variables{};  // of the template: a JSON object; empty: none
  uint64_t hash = 0;             // of the record: what decides where only a share of them is changed
};

inline constexpr std::string_view kAbsent = "absent";  // of Message::content

}  // namespace tightloop
