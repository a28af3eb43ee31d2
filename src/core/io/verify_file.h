#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/files.h"

namespace tightloop {

/// Reads a file of a checkpoint and compares it with what state.json says of it: its size, and its checksum
/// or those of its pieces. A checkpoint error where it is something else.
///
/// `hash`: hash64, however the caller counts what it reads.
void verify_file(const MappedFile& file, const nlohmann::json& said,
                 const std::function<uint64_t(std::string_view)>& hash);

}  // namespace tightloop
