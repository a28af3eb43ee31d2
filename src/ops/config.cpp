#include "ops/config.h"

#include <atomic>

#include "core/config.h"

namespace tightloop::ops {

namespace {
std::atomic<bool> plain_everywhere{false};
}  // namespace

void use_plain(bool plain) { plain_everywhere.store(plain, std::memory_order_relaxed); }
bool plain() { return plain_everywhere.load(std::memory_order_relaxed); }

void OpsConfig::describe(Fields& fields) {
  fields.add("plain", plain,
             "Run every operator as its plain twin in ordinary ATen: slow, for checking the fast ones");
}
void OpsConfig::apply() const { use_plain(plain); }

}  // namespace tightloop::ops
