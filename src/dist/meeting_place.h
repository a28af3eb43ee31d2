#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "dist/process_group.h"

namespace tightloop {

/// Where the processes of one start meet in a launcher's store, which outlives them: what is there may be of
/// an earlier start, and nothing that the launcher says is the same for all of one start and for no other. So
/// rank 0 chooses a place, and the others ask for it with words that nobody has used before.
class MeetingPlace {
 public:
  /// `store`: for these questions alone.
  explicit MeetingPlace(Store store);

  /// Of rank 0: the place, and telling it to all who have asked.
  const std::string& own() const { return own_; }
  void tell();
  /// Of the others: the place; nothing where rank 0 has not told within the limit.
  std::optional<std::string> ask(std::chrono::milliseconds limit);

 private:
  const Store store_;
  const std::string own_;  // of rank 0 its place, of the others their word
  size_t told_ = 0;        // characters of questions that were answered
};

}  // namespace tightloop
