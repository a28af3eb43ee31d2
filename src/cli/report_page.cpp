#include "cli/report_page.h"

#include <fmt/format.h>

#include <map>
#include <random>
#include <string_view>

#include "cli/page/page_files.h"
#include "core/files.h"
#include "train/watch/run_report.h"

namespace tightloop::cli {

std::string report_page(nlohmann::json data, bool live) {
  data["live"] = live;
  std::random_device random;
  const std::map<std::string_view, std::string> parts{
      {"nonce", fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random())},
      {"connect", live ? "'self'" : "'none'"},
      {"style", std::string(kPageStyle)},
      {"script", std::string(kPageScript)},
      {"data", script_json(data)}};
  std::string page;
  // One pass: what is put in is not looked at again, whatever it says.
  std::string_view rest = kPageHtml;
  for (size_t at; (at = rest.find("{{")) != rest.npos;) {
    const size_t end = rest.find("}}", at);
    page += rest.substr(0, at);
    page += parts.at(rest.substr(at + 2, end - at - 2));
    rest = rest.substr(end + 2);
  }
  return page.append(rest);
}

bool is_report_page(const fs::path& file) {
  if (!is_file(file)) return false;
  const MappedFile page(file);
  for (const char* part :
       {"<title>Training report</title>", "<script type=\"application/json\" id=\"data\">"})
    if (page.text().find(part) == std::string_view::npos) return false;
  return true;
}

}  // namespace tightloop::cli
