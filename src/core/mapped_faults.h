#pragma once

#include <cstddef>
#include <filesystem>

namespace tightloop {

/// While a file is watched, reading its map behind an end that moved (somebody cut the file) ends the program
/// with a sentence that names it and exit code 3, instead of a bare SIGBUS.
void watch_map(const std::byte* begin, size_t size, const std::filesystem::path& path);
void unwatch_map(const std::byte* begin);

}  // namespace tightloop
