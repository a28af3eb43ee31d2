#include "dist/send_files.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/files.h"

namespace tightloop {

namespace {

constexpr uint64_t kPiece = 16 << 20;

/// Below `root`, as the main process has them.
nlohmann::json files_below(const fs::path& root, const std::vector<fs::path>& names) {
  nlohmann::json files = nlohmann::json::array();
  const auto add = [&](const fs::path& file) {
    files.push_back({{"name", file.lexically_relative(root).string()}, {"bytes", file_bytes(file)}});
  };
  for (const auto& name : names) {
    if (is_file(root / name)) add(root / name);
    if (!is_folder(root / name)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / name))
      if (entry.is_regular_file()) add(entry.path());
  }
  return files;
}

}  // namespace

void send_files(Processes& processes, const fs::path& root, const std::vector<fs::path>& names, bool wanted) {
  if (!processes.several()) return;
  const bool sends = processes.main();
  const auto list =
      nlohmann::json::parse(processes.broadcast_text(sends ? files_below(root, names).dump() : ""));
  const auto buffer = at::empty({static_cast<int64_t>(kPiece)}, at::kByte);
  for (const auto& file : list) {
    const fs::path path = root / file.at("name").get<std::string>();
    const uint64_t bytes = file.at("bytes");
    std::optional<MappedFile> from;
    std::optional<FileWriter> to;
    if (sends) from.emplace(path);
    if (!sends && wanted) {
      make_folder(path.parent_path());
      to.emplace(path);
    }
    for (uint64_t at = 0; at < bytes; at += kPiece) {
      const auto piece = buffer.narrow(0, 0, static_cast<int64_t>(std::min(kPiece, bytes - at)));
      auto* data = piece.mutable_data_ptr<uint8_t>();
      const auto size = static_cast<size_t>(piece.numel());
      if (from) std::memcpy(data, from->text().data() + at, size);
      processes.broadcast(piece);
      if (to) to->write(data, size);
    }
    if (to) to->close();
  }
}

}  // namespace tightloop
