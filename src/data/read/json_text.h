#pragma once

#include <string>
#include <string_view>

namespace tightloop {

/// Appends `text` as a JSON string, quotes included. Bytes that are not UTF-8 go in as they are, for the
/// reader of the record to refuse.
inline void append_json_string(std::string_view text, std::string& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  size_t done = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    out.append(text.substr(done, i - done));
    done = i + 1;
    if (byte == '"' || byte == '\\') {
      out += '\\';
      out += text[i];
    } else {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  out.append(text.substr(done));
  out += '"';
}

}  // namespace tightloop
