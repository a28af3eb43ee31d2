#include "bench/kernel_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace tightloop {

namespace {

/// Every span's own time.
std::vector<int64_t> own_times(const std::vector<KernelSpan>& spans, bool nested) {
  std::vector<int64_t> own;
  for (const auto& span : spans) own.push_back(span.end - span.begin);
  if (!nested) return own;
  std::vector<size_t> order(spans.size()), callers;
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(
      order, {}, [&](size_t i) { return std::tuple(spans[i].thread, spans[i].begin, -spans[i].end); });
  for (const size_t i : order) {
    const auto contains = [&](const KernelSpan& caller) {
      return caller.thread == spans[i].thread && caller.end >= spans[i].end;
    };
    while (!callers.empty() && !contains(spans[callers.back()])) callers.pop_back();
    if (!callers.empty()) own[callers.back()] -= spans[i].end - spans[i].begin;
    callers.push_back(i);
  }
  return own;
}

/// Time in which at least one ran, and time from the first to the last.
std::pair<int64_t, int64_t> covered(const std::vector<KernelSpan>& spans) {
  std::vector<std::pair<int64_t, int64_t>> times;
  for (const auto& span : spans) times.emplace_back(span.begin, span.end);
  std::ranges::sort(times);
  if (times.empty()) return {0, 0};
  const int64_t first = times.front().first;
  int64_t busy = 0, until = first;
  for (const auto& [begin, end] : times) {
    if (end <= until) continue;
    busy += end - std::max(begin, until);
    until = end;
  }
  return {busy, until - first};
}

}  // namespace

KernelTable kernel_table(std::vector<KernelSpan> spans, bool nested) {
  std::erase_if(spans, [](const KernelSpan& span) { return span.end <= span.begin; });
  const auto own = own_times(spans, nested);
  std::map<std::string, KernelRow> by_name;
  for (size_t i = 0; i < spans.size(); ++i) {
    KernelRow& row = by_name[spans[i].name];
    row.name = spans[i].name;
    ++row.count;
    row.ms += static_cast<double>(own[i]) / 1e6;
  }
  KernelTable table;
  for (auto& [name, row] : by_name) table.rows.push_back(std::move(row));
  std::ranges::stable_sort(table.rows, std::greater(), &KernelRow::ms);
  const auto [busy, span] = covered(spans);
  table.busy_ms = static_cast<double>(busy) / 1e6, table.span_ms = static_cast<double>(span) / 1e6;
  return table;
}

std::string table_text(const KernelTable& table, int64_t steps, const std::string& kind) {
  constexpr size_t kShown = 25;
  const auto per_step = [&](auto value) { return static_cast<double>(value) / static_cast<double>(steps); };
  KernelRow all, rest;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const KernelRow& row = table.rows[i];
    all.count += row.count, all.ms += row.ms;
    if (i >= kShown) rest.count += row.count, rest.ms += row.ms;
  }
  std::string text = fmt::format("{:>9}{:>11}{:>8}{:>10}  {}\n", "a step", "ms", "share", "us each", kind);
  const auto add = [&](const KernelRow& row) {
    text += fmt::format("{:>9.4g}{:>11.3f}{:>7.1f}%{:>10.1f}  {}\n", per_step(row.count), per_step(row.ms),
                        all.ms > 0 ? 100 * row.ms / all.ms : 0, row.ms * 1e3 / static_cast<double>(row.count),
                        row.name);
  };
  for (size_t i = 0; i < std::min(kShown, table.rows.size()); ++i) add(table.rows[i]);
  if (rest.count > 0) {
    rest.name = fmt::format("({} others)", table.rows.size() - kShown);
    add(rest);
  }
  return text + fmt::format("{:.6g} {}s a step, busy {:.3f} ms of {:.3f} ms", per_step(all.count), kind,
                            per_step(table.busy_ms), per_step(table.span_ms));
}

}  // namespace tightloop
