#include "infer/decode/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace tightloop {
namespace {

constexpr int64_t kOfPage = 4;

std::vector<int32_t> counting(int32_t tokens, int32_t from = 0) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < tokens; ++i) ids.push_back(from + i);
  return ids;
}

TEST(PagePool, GivesAllPagesOnceAndThenNone) {
  PagePool pool(3, kOfPage);
  std::set<int32_t> taken;
  for (int i = 0; i < 3; ++i) taken.insert(pool.take().value());
  EXPECT_EQ(taken, (std::set<int32_t>{0, 1, 2}));
  EXPECT_FALSE(pool.take());
  EXPECT_EQ(pool.held(), 3);
  pool.give_back(1);
  EXPECT_EQ(pool.held(), 2);
  EXPECT_EQ(pool.take(), 1);
}

TEST(PagePool, FindsWholePagesFromTheBeginningOn) {
  PagePool pool(8, kOfPage);
  const auto ids = counting(10);
  const std::vector<int32_t> pages{*pool.take(), *pool.take()};
  pool.share(ids, pages);
  EXPECT_EQ(pool.find(ids), pages);
  EXPECT_EQ(pool.find(counting(7)), (std::vector<int32_t>{pages[0]})) << "the second is not whole";
  EXPECT_TRUE(pool.find(counting(3)).empty());
  EXPECT_TRUE(pool.find(counting(8, 1)).empty());
  EXPECT_TRUE(pool.find(counting(4, 4)).empty()) << "the same tokens, but not at the beginning";
}

TEST(PagePool, WhatNobodyHoldsStaysUntilItsRoomIsNeeded) {
  PagePool pool(3, kOfPage);
  const auto ids = counting(8), other = counting(4, 50);
  const std::vector<int32_t> pages{*pool.take(), *pool.take()};
  pool.share(ids, pages);
  pool.give_back(pages[1]), pool.give_back(pages[0]);
  EXPECT_EQ(pool.held(), 0);
  EXPECT_EQ(pool.find(ids), pages);
  EXPECT_EQ(pool.held(), 2);
  pool.give_back(pages[1]), pool.give_back(pages[0]);
  const auto third = pool.take(), fourth = pool.take();
  EXPECT_EQ(fourth, pages[1]) << "the end goes before the beginning";
  EXPECT_EQ(pool.find(ids), (std::vector<int32_t>{pages[0]}));
  EXPECT_FALSE(pool.take()) << "held again";
  pool.forget();
  EXPECT_TRUE(pool.find(ids).empty());
  EXPECT_EQ(pool.held(), 3);
  for (const auto page : {*third, *fourth, pages[0]}) pool.give_back(page);
  EXPECT_EQ(pool.held(), 0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.take());
}

TEST(PagePool, TheFirstOfTwoSequencesWithTheSameTokensIsFound) {
  PagePool pool(6, kOfPage);
  const auto ids = counting(12);
  const std::vector<int32_t> first{*pool.take(), *pool.take()},
      second{*pool.take(), *pool.take(), *pool.take()};
  pool.share(ids, first);
  pool.share(ids, second);
  EXPECT_EQ(pool.find(ids), (std::vector<int32_t>{first[0], first[1], second[2]}));
}

// Whatever happens, a page is in one place alone, and what is found holds the tokens that were asked for.
TEST(PagePool, KeepsItsBooks) {
  std::mt19937 random(5);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  PagePool pool(24, kOfPage);
  struct User {
    std::vector<int32_t> ids, pages;
  };
  std::vector<User> users;
  std::map<int32_t, std::vector<int32_t>> content;  // of a page: all tokens up to its end
  for (int step = 0; step < 20000; ++step) {
    const size_t what = below(10);
    if (what < 4 && users.size() < 8) {
      User user;
      for (size_t i = 0, tokens = 1 + below(30); i < tokens; ++i)
        user.ids.push_back(static_cast<int32_t>(below(2)));
      user.pages = pool.find(user.ids);
      for (size_t i = 0; i < user.pages.size(); ++i)
        ASSERT_EQ(content[user.pages[i]],
                  std::vector(user.ids.begin(), user.ids.begin() + (i + 1) * kOfPage));
      bool whole = true;
      while (whole && user.pages.size() * kOfPage < user.ids.size()) {
        const auto page = pool.take();
        if (page) {
          for (const User& other : users) ASSERT_EQ(std::ranges::count(other.pages, *page), 0);
          user.pages.push_back(*page);
          const size_t end = std::min(user.ids.size(), user.pages.size() * kOfPage);
          content[*page] = {user.ids.begin(), user.ids.begin() + end};
        }
        whole = page.has_value();
      }
      const size_t full = std::min(user.pages.size(), user.ids.size() / kOfPage);
      if (below(3) > 0) pool.share(user.ids, std::span(user.pages).first(full));
      users.push_back(std::move(user));
    } else if (!users.empty() && what < 9) {
      const size_t gone = below(users.size());
      for (const int32_t page : users[gone].pages) pool.give_back(page);
      users.erase(users.begin() + gone);
    } else if (below(20) == 0) {
      pool.forget();
    }
    std::set<int32_t> held;
    for (const User& user : users) held.insert(user.pages.begin(), user.pages.end());
    ASSERT_EQ(pool.held(), static_cast<int64_t>(held.size()));
  }
}

}  // namespace
}  // namespace tightloop
