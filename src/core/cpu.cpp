#include "core/cpu.h"

#include <fstream>
#include <set>
#include <sstream>

namespace tightloop {

std::string cpu_info(std::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key))
      if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return {};
}

bool cpu_has(std::string_view flag) {
  static const std::set<std::string, std::less<>> flags = [] {
    std::istringstream words(cpu_info("flags"));
    std::set<std::string, std::less<>> all;
    for (std::string word; words >> word;) all.insert(word);
    return all;
  }();
  return flags.contains(flag);
}

}  // namespace tightloop
