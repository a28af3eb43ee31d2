#include "dist/hostlist.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>

#include "core/error.h"

namespace tightloop {

namespace {

constexpr size_t kMostHosts = 1 << 20;  // more is a slip: it would only fill memory

/// Reads a hostlist from front to back.
class HostlistReader {
 public:
  explicit HostlistReader(std::string_view text) : text_(text) {}

  std::vector<std::string> read() {
    std::vector<std::string> hosts;
    do {
      for (auto& host : names()) hosts.push_back(std::move(host));
      require(hosts.size() <= kMostHosts, "names too many machines");
    } while (take(','));
    require(at_ == text_.size(), "has a ']' too many");
    return hosts;
  }

 private:
  /// All that one name with brackets stands for; with several, the last one changes fastest.
  std::vector<std::string> names() {
    std::vector<std::string> names{""};
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != ']') {
      const auto parts = take('[') ? numbers() : std::vector<std::string>{plain()};
      require(names.size() * parts.size() <= kMostHosts, "names too many machines");
      std::vector<std::string> longer;
      for (const auto& name : names)
        for (const auto& part : parts) longer.push_back(name + part);
      names = std::move(longer);
    }
    require(at_ > begin, "has an empty name");
    return names;
  }

  std::string plain() {
    const size_t begin = at_;
    while (at_ < text_.size() && std::string_view(",[]").find(text_[at_]) == std::string_view::npos) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  /// What stands in brackets, these taken too.
  std::vector<std::string> numbers() {
    std::vector<std::string> all;
    do {
      const std::string_view first = digits(), last = take('-') ? digits() : first;
      const uint64_t from = number(first), to = number(last);
      require(from <= to, "has a range that ends before it begins");
      require(to - from < kMostHosts && all.size() <= kMostHosts, "names too many machines");
      for (uint64_t i = from; i <= to; ++i) all.push_back(fmt::format("{:0{}}", i, first.size()));
    } while (take(','));
    require(take(']'), "has no ']' for a '['");
    return all;
  }

  std::string_view digits() {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    require(at_ > begin, "has something else than numbers between '[' and ']'");
    return text_.substr(begin, at_ - begin);
  }

  uint64_t number(std::string_view digits) const {
    uint64_t value = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    require(read.ec == std::errc{} && digits.size() < 19, "has a number that is too large");
    return value;
  }

  bool take(char wanted) {
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  void require(bool good, const char* problem) const {
    if (good) return;
    throw usage_error(
        "'{}' is no list of machines as Slurm writes it (gpu[01-03,7],login1): it {}. Set MASTER_ADDR to the "
        "machine of the first process instead.",
        text_, problem);
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::vector<std::string> hosts_of(std::string_view hostlist) { return HostlistReader(hostlist).read(); }

}  // namespace tightloop
