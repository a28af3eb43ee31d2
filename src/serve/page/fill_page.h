#pragma once

#include <map>
#include <string>
#include <string_view>

namespace tightloop::serve {

/// A page with its parts in place of {{their names}}. What is put in is not looked at again, whatever it
/// says.
std::string fill_page(std::string_view html, const std::map<std::string_view, std::string>& parts);

/// Random: scripts and styles of one page count by it, and none that found its way into the page's data.
std::string page_nonce();

}  // namespace tightloop::serve
