#include "infer/decode/paged_pass.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "core/error.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "infer/decode/chosen_tokens.h"
#include "infer/decoder.h"
#include "model/family.h"

namespace tightloop {

namespace {

/// Sequences that a captured pass has room for: few sizes, little room to spare.
int64_t rounded_up(int64_t sequences) {
  int64_t step = 1;
  while (step * 4 < sequences) step *= 2;  // 1 2 3 4 6 8 12 16 24 32 48 64
  return (sequences + step - 1) / step * step;
}

}  // namespace

PagedPass::PagedPass(LanguageModel& model, int64_t pages, int64_t seats, bool graphs)
    : model_(model),
      torch_device_(model.device()),
      device_(device(torch_device_.str())),
      seats_(seats),
      longest_(std::min(pages * KvPages::kPage, longest_sequence(model.config()))),
      pages_(model.config().layers, pages),
      graphs_(graphs && device_.is_cuda()),
      sampling_(seats + 1, model.config().vocab_size, torch_device_) {
  const auto numbers = at::TensorOptions(at::kInt).device(torch_device_);
  tables_ = at::zeros({seats + 1, pages}, numbers);
  for (at::Tensor* ids : {&chosen_, &before_}) *ids = at::zeros({seats + 1}, numbers.dtype(at::kLong));
}

void PagedPass::place(int32_t seat, int64_t number, int32_t page) {
  placed_.insert_or_assign(seat * tables_.size(1) + number, page);
}

void PagedPass::send_pages() {
  if (placed_.empty()) return;
  if (torch_device_.is_cpu()) {
    for (const auto& [at, page] : placed_) tables_.mutable_data_ptr<int32_t>()[at] = page;
  } else {
    std::vector<int64_t> where;
    std::vector<int32_t> what;
    for (const auto& [at, page] : placed_) where.push_back(at), what.push_back(page);
    tables_.view(-1).index_copy_(0, send_numbers<int64_t>(where, torch_device_),
                                 send_numbers<int32_t>(what, torch_device_));
  }
  placed_.clear();
}

std::vector<int32_t> PagedPass::numbers_of(const std::vector<PassToken>& tokens, int64_t size) const {
  const auto N = static_cast<size_t>(size);
  std::vector<int32_t> numbers(kRows * N);
  for (size_t i = 0; i < N; ++i) {
    const PassToken token =
        i < tokens.size() ? tokens[i] : PassToken{.position = -1, .seat = static_cast<int32_t>(seats_)};
    numbers[kId * N + i] = token.id, numbers[kBefore * N + i] = token.before;
    numbers[kPosition * N + i] = token.position, numbers[kSeat * N + i] = token.seat;
    numbers[kPlace * N + i] = token.place;
  }
  return numbers;
}

PassResult PagedPass::compute(const at::Tensor& numbers, const PassWish& wish, int64_t longest) {
  at::Tensor seats = numbers[kSeat], places = numbers[kPlace];
  const auto known = [&](const at::Tensor& given, const at::Tensor& by_seat) {
    return at::where(given < 0, by_seat.index_select(0, seats), given);
  };
  at::Tensor ids = known(numbers[kId], chosen_);
  PagedTokens tokens{.pages = pages_,
                     .positions_N = numbers[kPosition],
                     .rows_N = seats,
                     .tables = tables_,
                     .longest = longest,
                     .apart = wish.apart};
  if (family_of(model_.config()).has.previous_token)
    tokens.previous_N1 = known(numbers[kBefore], before_).unsqueeze(1);
  at::Tensor hidden = model_.forward(ids.unsqueeze(1), {.paged = &tokens}).hidden_BTD.squeeze(1);
  if (!wish.apart) {
    if (wish.due.empty()) return {};
    const at::Tensor due = send_numbers<int32_t>(wish.due, torch_device_);
    for (at::Tensor* x : {&hidden, &seats, &places, &ids}) *x = x->index_select(0, due);
  }
  PassResult result{.logits_BV = model_.logits(hidden)};
  result.ids_B = sampling_.choose(result.logits_BV, seats, places, wish.penalised);
  const at::Tensor where = seats.to(at::kLong);
  chosen_.index_copy_(0, where, result.ids_B);
  if (tokens.previous_N1.defined()) before_.index_copy_(0, where, ids);
  return result;
}

PassResult PagedPass::run(const std::vector<PassToken>& tokens, const PassWish& wish) {
  send_pages();
  sampling_.send();
  if (graphs_ && wish.apart) return run_captured(tokens, wish);
  const auto N = static_cast<int64_t>(tokens.size());
  int64_t longest = longest_;  // tables of positions stay where they are: captured passes read them
  if (!graphs_) longest = std::ranges::max(tokens, {}, &PassToken::position).position + 1;
  return compute(send_numbers<int32_t>(numbers_of(tokens, N), torch_device_).view({kRows, N}), wish, longest);
}

PassResult PagedPass::run_captured(const std::vector<PassToken>& tokens, const PassWish& wish) {
  const auto sequences = static_cast<int64_t>(tokens.size()), N = rounded_up(sequences);
  Captured& pass = captured_[{N, wish.penalised}];
  const at::Tensor numbers = send_numbers<int32_t>(numbers_of(tokens, N), torch_device_).view({kRows, N});
  if (!pass.numbers.defined())
    pass.numbers = numbers.clone();
  else
    pass.numbers.copy_(numbers);
  if (pass.warm && !pass.graph && graphs_) try_capture(pass, wish);
  PassResult result;
  if (pass.graph) {
    pass.graph->replay();
    ++replayed_;
    result = pass.result;
  } else {
    result = compute(pass.numbers, wish, longest_);
    pass.warm = true;
  }
  return {result.logits_BV.narrow(0, 0, sequences), result.ids_B.narrow(0, 0, sequences)};
}

void PagedPass::try_capture(Captured& pass, const PassWish& wish) {
  try {
    pass.graph = device_.capture([&] { pass.result = compute(pass.numbers, wish, longest_); });
  } catch (const std::exception& error) {
    log::warn("Tokens are decoded without CUDA graphs from here on, as this pass cannot be captured: {}",
              first_line(error.what()));
    graphs_ = false;
  }
}

}  // namespace tightloop
