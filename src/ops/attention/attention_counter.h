#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tightloop::ops {

/// What attention hides from a query, which is what decides who can compute it.
enum class AttentionKind { kFull, kCausal, kWindow, kDocuments, kPadding, kCount };

/// Counts what a backend computes. Counting takes no lock; it is there for the rest of the process.
class AttentionCounter {
 public:
  explicit AttentionCounter(std::string backend);
  AttentionCounter(const AttentionCounter&) = delete;
  AttentionCounter& operator=(const AttentionCounter&) = delete;

  /// The first time for a kind, `kernel` says which of several the backend takes for it; empty: it has one.
  void count(AttentionKind kind, const std::function<std::string()>& kernel = {});

 private:
  friend std::vector<struct AttentionUse> attention_used();
  friend void forget_attention_used();
  static constexpr auto kKinds = static_cast<size_t>(AttentionKind::kCount);
  const std::string backend_;
  std::array<std::atomic<int64_t>, kKinds> runs_{};
  std::array<std::string, kKinds> kernels_{};
};

struct AttentionUse {
  std::string kind, backend;  // "causal", "torch"
  std::string kernel;         // of the backend, where it has several: "flash"
  int64_t count = 0;          // calls; a captured step that is replayed makes none

  /// "torch (flash)".
  std::string by() const { return kernel.empty() ? backend : backend + " (" + kernel + ")"; }
};

/// Who has computed attention in this process so far, by kind.
std::vector<AttentionUse> attention_used();
/// Counts from here on. Not while another thread attends.
void forget_attention_used();
/// The same as text: "causal by torch (flash), window by torch with a mask (math)"; empty where nobody has.
std::string attention_text();

}  // namespace tightloop::ops
