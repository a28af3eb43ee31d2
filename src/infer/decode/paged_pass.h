#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/device.h"
#include "infer/decode/seat_sampling.h"
#include "model/language_model.h"

namespace tightloop {

/// A token that a pass reads.
struct PassToken {
  static constexpr int32_t kChosen = -1;
  int32_t id = 0;      // kChosen: the one that was chosen for its seat last, which the host need not know
  int32_t before = 0;  // the id of the token before it; kChosen: as above; any at position 0
  int32_t position = 0;
  int32_t seat = 0;   // of its sequence
  int32_t place = 0;  // in the answer, of the token that is chosen behind it
};

/// What a pass is to give.
struct PassWish {
  std::vector<int32_t> due{};  // tokens of the pass, by number, behind which the next one is wanted
  bool apart = false;          // every token is of another sequence, and all are due
  bool penalised = false;      // one of those due has a penalty
};

struct PassResult {
  at::Tensor logits_BV{};  // by due token; until the next pass
  at::Tensor ids_B{};      // int64: the next tokens, by due token; until the next pass
};

/// Passes of a model over tokens of many sequences, each of which has a seat: a row of the table of its
/// pages, and the token that was chosen for it last. On a GPU passes of one token a sequence are captured as
/// graphs, by their number of sequences rounded up.
class PagedPass {
 public:
  PagedPass(LanguageModel& model, int64_t pages, int64_t seats, bool graphs);

  /// Page `number` of a seat's sequence is this one.
  void place(int32_t seat, int64_t number, int32_t page);
  SeatSampling& sampling() { return sampling_; }
  /// Passes that were replayed as graphs.
  int64_t replayed() const { return replayed_; }
  PassResult run(const std::vector<PassToken>& tokens, const PassWish& wish);

 private:
  /// The rows of a pass's numbers: int32, as they are sent to the device.
  enum Row { kId, kBefore, kPosition, kSeat, kPlace, kRows };
  struct Captured {
    at::Tensor numbers;
    bool warm = false;
    PassResult result{};
    std::unique_ptr<Graph> graph{};
  };

  void send_pages();
  std::vector<int32_t> numbers_of(const std::vector<PassToken>& tokens, int64_t size) const;
  PassResult compute(const at::Tensor& numbers, const PassWish& wish, int64_t longest);
  PassResult run_captured(const std::vector<PassToken>& tokens, const PassWish& wish);
  void try_capture(Captured& pass, const PassWish& wish);

  LanguageModel& model_;
  const at::Device torch_device_;
  Device& device_;
  const int64_t seats_, longest_;
  KvPages pages_;
  bool graphs_;
  int64_t replayed_ = 0;
  at::Tensor tables_;           // int32 (seats + 1, pages); the last seat is nobody's
  at::Tensor chosen_, before_;  // int64 (seats + 1): the tokens chosen last, and those before them
  SeatSampling sampling_;
  /// Not sent yet: elements of tables_. Each stands here once: a seat may be given to another sequence before
  /// anything is sent, and a device takes several values for one element in any order.
  std::map<int64_t, int32_t> placed_;
  std::map<std::pair<int64_t, bool>, Captured> captured_;  // by size, and whether with a penalty
};

}  // namespace tightloop
