#include "dist/board.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <utility>

namespace tightloop {

namespace {

constexpr std::chrono::milliseconds kLook{100};  // how often one that waits looks whether all are there
constexpr std::chrono::milliseconds kPart{500};  // for an answer that is on its way

}  // namespace

/// What the thread is to ask.
struct Board::Jobs {
  explicit Jobs(Store of) : store(std::move(of)) {}

  const Store store;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::packaged_task<void(c10d::Store&)>> open;
  bool ending = false, ended = false;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return ending || !open.empty(); });
      if (ending) break;
      auto next = std::move(open.front());
      open.pop_front();
      lock.unlock();
      next(*store);
      lock.lock();
    }
    ended = true;
    changed.notify_all();
  }
};

Board::Board(Store store, std::function<void()> check)
    : check_(std::move(check)),
      jobs_(std::make_shared<Jobs>(std::move(store))),
      thread_([jobs = jobs_] { jobs->run(); }) {}

Board::~Board() {
  bool ended = false;
  {
    std::unique_lock lock(jobs_->mutex);
    jobs_->ending = true;
    jobs_->changed.notify_all();
    ended = jobs_->changed.wait_for(lock, kPart, [&] { return jobs_->ended; });
  }
  ended ? thread_.join() : thread_.detach();
}

void Board::ask(std::function<void(c10d::Store&)> question) {
  std::packaged_task<void(c10d::Store&)> task(std::move(question));
  auto answer = task.get_future();
  {
    const std::lock_guard lock(jobs_->mutex);
    jobs_->open.push_back(std::move(task));
  }
  jobs_->changed.notify_all();
  while (answer.wait_for(kLook) != std::future_status::ready) check_();
  answer.get();
}

void Board::post(const std::string& name, const std::string& text) {
  ask([name, text](c10d::Store& store) { store.set(name, text); });
}

// What is found is shared with the question, which may be answered when nobody waits any more.
std::optional<std::string> Board::find(const std::string& name) {
  const auto found = std::make_shared<std::optional<std::string>>();
  ask([name, found](c10d::Store& store) {
    if (store.check({name})) *found = store.get_to_str(name);
  });
  return *found;
}

void Board::remove(const std::string& name) {
  ask([name](c10d::Store& store) { store.deleteKey(name); });
}

}  // namespace tightloop
