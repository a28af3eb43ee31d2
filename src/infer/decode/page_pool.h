#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tightloop {

/// Which pages of a cache are whose. Pages that a sequence has filled may be shared by all that begin with
/// the same tokens; those that nobody holds are kept until their room is needed, the ones used longest ago
/// going first.
class PagePool {
 public:
  PagePool(int64_t pages, int64_t page) : page_(page), pages_(static_cast<size_t>(pages)) {
    for (int64_t i = pages; i-- > 0;) free_.push_back(static_cast<int32_t>(i));
  }

  /// A page for one more holder, with nothing in it; none where all are held.
  std::optional<int32_t> take();
  /// Given back by one holder.
  void give_back(int32_t page);
  /// The pages that begin `ids` as far as they are shared, for one more holder.
  std::vector<int32_t> find(std::span<const int32_t> ids);
  /// What is in the first pages of a sequence, `ids` (whole pages), may be shared.
  void share(std::span<const int32_t> ids, std::span<const int32_t> pages);
  /// Nothing may be shared any more.
  void forget();

  int64_t size() const { return static_cast<int64_t>(pages_.size()); }
  int64_t held() const { return size() - static_cast<int64_t>(free_.size() + idle_.size()); }

 private:
  /// The page before (its content's number, 0 at the beginning) and the tokens: what keys and values in a
  /// page depend on.
  using Content = std::pair<uint64_t, std::vector<int32_t>>;
  struct Page {
    int64_t holders = 0;
    uint64_t content = 0;                       // of a page that may be shared, a number never used again
    std::map<Content, int32_t>::iterator at{};  // in shared_, where content is not 0
    std::list<int32_t>::iterator idle{};        // in idle_, where nobody holds it and content is not 0
  };
  void hold(int32_t page);
  void unshare(Page& page);

  const int64_t page_;
  std::vector<Page> pages_;
  std::vector<int32_t> free_;
  std::list<int32_t> idle_;  // shared by nobody at the moment, the one used longest ago first
  std::map<Content, int32_t> shared_;
  uint64_t contents_ = 0;
};

}  // namespace tightloop
