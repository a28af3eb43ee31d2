#include "model/families/seq2seq/seq2seq.h"

namespace tightloop {

HuggingFaceLayout seq2seq_layout() {
  return {.none = "it is a translator (seq2seq), which Hugging Face has no layout for"};
}

}  // namespace tightloop
