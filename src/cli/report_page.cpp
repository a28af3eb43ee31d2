#include "cli/report_page.h"

#include <string_view>

#include "cli/page/page_files.h"
#include "core/files.h"
#include "serve/page/fill_page.h"
#include "train/watch/run_report.h"

namespace tightloop::cli {

std::string report_page(nlohmann::json data, bool live) {
  data["live"] = live;
  return serve::fill_page(kPageHtml, {{"nonce", serve::page_nonce()},
                                      {"connect", live ? "'self'" : "'none'"},
                                      {"style", std::string(kPageStyle)},
                                      {"script", std::string(kPageScript)},
                                      {"data", script_json(data)}});
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
