// What a run does when it gets a signal: all of its processes, at the same step.
#include "core/interrupt.h"
#include "core/log.h"
#include "train/trainer.h"

namespace tightloop {

Trainer::Asked Trainer::asked_at(int64_t step) {
  constexpr int64_t kSave = int64_t{1} << 32;  // more than there are processes
  int64_t count = 0;
  if (processes_.world() == 1) {
    count = interrupted() + kSave * take_save_request();
  } else if (step % recipe_.train.loss_extract_interval == 0) {  // agreeing costs a round of messages
    count = processes_.sum(interrupted() + kSave * take_save_request());
  }
  const Asked asked{count % kSave > 0, count >= kSave};
  if (asked.save && !asked.stop && processes_.main())
    log::info("SIGUSR1: step {} is saved, training goes on.", step);
  return asked;
}

}  // namespace tightloop
