#pragma once

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "core/files.h"
#include "support.h"

namespace tightloop::testing {

/// The Python that has tensorboard and wandb (tools/setup --watch), which may be absent.
inline fs::path watch_python() { return source_folder() / ".deps/watch/bin/python"; }

/// What a script of tests/report says of a folder.
inline nlohmann::json read_back(const std::string& script, const fs::path& folder,
                                const std::string& more = "") {
  const TempFolder scratch;
  const auto out = scratch / "out.json";
  const auto quoted = [](const fs::path& path) { return "'" + path.string() + "' "; };
  const std::string command = quoted(watch_python()) + quoted(source_folder() / "tests/report" / script) +
                              quoted(folder) + quoted(out) + more;
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return is_file(out) ? nlohmann::json::parse(read_file(out)) : nlohmann::json();
}

/// Lines of metrics.jsonl.
inline std::vector<nlohmann::json> json_lines(const fs::path& file) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace tightloop::testing
