#pragma once

/// Text to ids and back: Hugging Face, OpenAI and SentencePiece files; training of a byte-level BPE.
/// Component: data.

#include "tokenizer/bpe_train.h"
#include "tokenizer/tokenizer.h"
