#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tightloop::cli {

/// A page that shows the data of runs (train/watch/run_report.h) and needs no network: charts are drawn by a
/// script inside of it. `live`: it asks where it came from for `data.json` again and again. Scripts and
/// styles count by a random number in them alone, so that none in the data would ever run.
std::string report_page(nlohmann::json data, bool live);

/// Whether a file is such a page, which may be written again; also one of another version.
bool is_report_page(const std::filesystem::path& file);

}  // namespace tightloop::cli
