#include "dist/meeting_place.h"

#include <random>
#include <utility>
#include <vector>

#include "core/hash.h"

namespace tightloop {

namespace {

constexpr const char* kAsked = "asked";  // words, one behind the other

std::string new_word() {
  std::random_device random;
  const auto half = [&] { return hex64(uint64_t{random()} << 32 | random()); };
  return half() + half();
}

std::string place_key(const std::string& word) { return "place/" + word; }

}  // namespace

MeetingPlace::MeetingPlace(Store store) : store_(std::move(store)), own_(new_word()) {}

void MeetingPlace::tell() {
  if (!store_->check({kAsked})) return;
  const std::string asked = store_->get_to_str(kAsked);
  for (; told_ + own_.size() <= asked.size(); told_ += own_.size())
    store_->set(place_key(asked.substr(told_, own_.size())), own_);
}

std::optional<std::string> MeetingPlace::ask(std::chrono::milliseconds limit) {
  store_->append(kAsked, {own_.begin(), own_.end()});
  try {
    store_->wait({place_key(own_)}, limit);
  } catch (const c10::DistStoreError&) {
    return {};
  }
  return store_->get_to_str(place_key(own_));
}

}  // namespace tightloop
