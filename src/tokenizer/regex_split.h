#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tightloop {

/// A split pattern that has no scanner of its own, matched by PCRE2 (compiled to machine code where it can
/// be). Its Unicode is that of the installed PCRE2 (10.42: Unicode 14). Safe to use from many threads.
class RegexSplit {
 public:
  /// A data error when the pattern does not compile.
  explicit RegexSplit(const std::string& pattern);
  ~RegexSplit();
  RegexSplit(const RegexSplit&) = delete;
  RegexSplit& operator=(const RegexSplit&) = delete;

  /// Calls emit for each match and for each stretch between matches, in order: nothing of the text is lost.
  void split(std::string_view text, const std::function<void(std::string_view)>& emit) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace tightloop
