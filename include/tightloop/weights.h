#pragma once

/// safetensors, and Hugging Face folders in and out.
/// Component: model.

#include "model/files/huggingface.h"
#include "model/files/safetensors.h"
