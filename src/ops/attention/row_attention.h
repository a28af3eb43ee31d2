#pragma once

#include "ops/attention/attention_backend.h"

namespace tightloop::ops {

/// Attention on the CPU for rows whose scores fit into a core's cache: one key head of one row is one task,
/// so that the threads share nothing and the result does not depend on their number.
bool row_attention_takes(const AttentionCall& call);
at::Tensor row_attention(const AttentionCall& call);

}  // namespace tightloop::ops
