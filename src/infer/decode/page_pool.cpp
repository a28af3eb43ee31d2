#include "infer/decode/page_pool.h"

namespace tightloop {

std::optional<int32_t> PagePool::take() {
  if (free_.empty()) {
    if (idle_.empty()) return std::nullopt;
    const int32_t oldest = idle_.front();
    idle_.pop_front();
    unshare(pages_[static_cast<size_t>(oldest)]);
    free_.push_back(oldest);
  }
  const int32_t page = free_.back();
  free_.pop_back();
  pages_[static_cast<size_t>(page)].holders = 1;
  return page;
}

void PagePool::hold(int32_t number) {
  Page& page = pages_[static_cast<size_t>(number)];
  if (page.holders++ == 0) idle_.erase(page.idle);
}

void PagePool::give_back(int32_t number) {
  Page& page = pages_[static_cast<size_t>(number)];
  if (--page.holders > 0) return;
  if (page.content == 0)
    free_.push_back(number);
  else
    page.idle = idle_.insert(idle_.end(), number);
}

std::vector<int32_t> PagePool::find(std::span<const int32_t> ids) {
  std::vector<int32_t> found;
  uint64_t before = 0;
  for (; ids.size() >= static_cast<size_t>(page_); ids = ids.subspan(static_cast<size_t>(page_))) {
    const auto tokens = ids.first(static_cast<size_t>(page_));
    const auto known = shared_.find({before, {tokens.begin(), tokens.end()}});
    if (known == shared_.end()) break;
    hold(known->second);
    found.push_back(known->second);
    before = pages_[static_cast<size_t>(known->second)].content;
  }
  return found;
}

void PagePool::share(std::span<const int32_t> ids, std::span<const int32_t> pages) {
  uint64_t before = 0;
  for (const int32_t number : pages) {
    const auto tokens = ids.first(static_cast<size_t>(page_));
    ids = ids.subspan(static_cast<size_t>(page_));
    Page& page = pages_[static_cast<size_t>(number)];
    if (page.content == 0) {
      const auto [at, added] = shared_.try_emplace({before, {tokens.begin(), tokens.end()}}, number);
      if (added) {
        page.content = ++contents_, page.at = at;
      } else {  // another sequence was first: what follows goes on from its page
        before = pages_[static_cast<size_t>(at->second)].content;
        continue;
      }
    }
    before = page.content;
  }
}

void PagePool::unshare(Page& page) {
  shared_.erase(page.at);
  page.content = 0;
}

void PagePool::forget() {
  for (const int32_t idle : idle_) free_.push_back(idle);
  idle_.clear();
  for (Page& page : pages_)
    if (page.content != 0) unshare(page);
}

}  // namespace tightloop
