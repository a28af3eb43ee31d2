#include "ops/fp8/largest.h"

#include <ATen/ops/zeros.h>

#include <deque>
#include <mutex>

#include "ops/fp8/fp8_cast.h"
#include "ops/fp8/fp8_linear.h"

namespace tightloop::ops {

namespace {

using at::Tensor;

struct Note {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  const void* data;
  int64_t count;
  int64_t version;  // of the tensor's data, which torch counts
  Tensor most;

  bool is_of(const Tensor& x) const {
    return !storage.expired() && storage._unsafe_get_target() == x.storage().unsafeGetStorageImpl() &&
           data == x.const_data_ptr() && count == x.numel() && version == x._version();
  }
};

// What is asked for was written a few operators ago. Threads: autograd has its own.
constexpr size_t kMostNotes = 16;
struct Notes {
  std::mutex mutex;
  std::deque<Note> notes;
};
Notes& all_notes() {
  static auto* notes = new Notes;  // outlives the device's allocator
  return *notes;
}

bool may_be_noted(const Tensor& x) {
  return fp8() && x.numel() > 0 && !x.is_inference() && x.is_contiguous();
}

}  // namespace

Tensor note_largest(const Tensor& x) {
  if (!may_be_noted(x)) return {};
  Note note{x.storage().getWeakStorageImpl(), x.const_data_ptr(), x.numel(), x._version(),
            at::zeros({}, x.options().dtype(at::kFloat))};
  const Tensor most = note.most;
  Notes& all = all_notes();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.notes, [](const Note& old) { return old.storage.expired(); });
  if (all.notes.size() == kMostNotes) all.notes.pop_front();
  all.notes.push_back(std::move(note));
  return most;
}

Tensor largest_of(const Tensor& x) {
  if (may_be_noted(x)) {
    Notes& all = all_notes();
    const std::lock_guard lock(all.mutex);
    for (const Note& note : all.notes)
      if (note.is_of(x)) return note.most;
  }
  return absolute_max(x);
}

}  // namespace tightloop::ops
