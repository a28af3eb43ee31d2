#pragma once

/// Fused operators with a gradient, and fused updates of many tensors; every one has a plain twin.
/// Component: ops.

#include "ops/attention/attention.h"
#include "ops/attention/attention_backend.h"
#include "ops/attention/attention_counter.h"
#include "ops/attention/rope.h"
#include "ops/attention/split_heads.h"
#include "ops/config.h"
#include "ops/linear.h"
#include "ops/loss/cross_entropy.h"
#include "ops/loss/fused_head.h"
#include "ops/norm/residual_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/optim/adamw.h"
#include "ops/optim/gradient_norm.h"
#include "ops/optim/muon.h"
#include "ops/pointwise/activation.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/embedding.h"
#include "ops/pointwise/swiglu.h"
