#pragma once

/// What a trained model is for: loading, generating, exporting to Hugging Face.
/// Component: infer.

#include "infer/export.h"
#include "infer/generate.h"
#include "infer/loaded_run.h"
