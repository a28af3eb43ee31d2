#include "serve/page/fill_page.h"

#include <fmt/format.h>

#include <random>

namespace tightloop::serve {

std::string fill_page(std::string_view html, const std::map<std::string_view, std::string>& parts) {
  std::string page;
  for (size_t at; (at = html.find("{{")) != html.npos;) {
    const size_t end = html.find("}}", at);
    page += html.substr(0, at);
    page += parts.at(html.substr(at + 2, end - at - 2));
    html = html.substr(end + 2);
  }
  return page.append(html);
}

std::string page_nonce() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace tightloop::serve
