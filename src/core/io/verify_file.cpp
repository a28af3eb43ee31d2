#include "core/io/verify_file.h"

#include <string>

#include "core/error.h"
#include "core/hash.h"

namespace tightloop {

void verify_file(const MappedFile& file, const nlohmann::json& said,
                 const std::function<uint64_t(std::string_view)>& hash) {
  const std::string path = file.path().string();
  const std::string_view text = file.text();
  if (text.size() != said.at("bytes").get<uint64_t>())
    throw checkpoint_error("'{}' is truncated: {} of {} bytes.", path, text.size(),
                           said.at("bytes").get<uint64_t>());
  const auto verify = [&](uint64_t begin, uint64_t bytes, const nlohmann::json& piece) {
    if (begin > text.size() || bytes > text.size() - begin ||
        hex64(hash(text.substr(begin, bytes))) != piece.at("xxh3").get<std::string>())
      throw checkpoint_error("'{}' is damaged: its checksum does not match.", path);
  };
  if (!said.contains("pieces")) return verify(0, text.size(), said);
  const auto refuse = [&] {
    throw checkpoint_error("'{}' is damaged: '{}' does not know all of it.",
                           (file.path().parent_path() / "state.json").string(),
                           file.path().filename().string());
  };
  uint64_t end = 0;
  for (const auto& piece : said.at("pieces")) {
    if (piece.at("begin").get<uint64_t>() != end) refuse();
    verify(end, piece.at("bytes").get<uint64_t>(), piece);
    end += piece.at("bytes").get<uint64_t>();
  }
  if (end != text.size()) refuse();
}

}  // namespace tightloop
