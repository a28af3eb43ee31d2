#include "core/error.h"
#include "model/families/seq2seq/seq2seq.h"
#include "model/family.h"
#include "model/parts/rotary.h"

namespace tightloop {

namespace {

void seq2seq_defaults(ModelConfig& config) {
  if ((config.kv_heads != 0 && config.kv_heads != config.heads) ||
      (config.head_size != 0 && config.head_size * config.heads != config.width))
    throw usage_error(
        "seq2seq has heads of width / heads, as many for keys and values: leave out model.kv_heads and "
        "model.head_size.");
  if (config.share_embeddings) config.source_vocab_size = config.vocab_size;
  if (config.source_vocab_size == 0)
    throw usage_error("seq2seq without shared embeddings needs model.source_vocab_size.");
  if (config.encoder_layers == 0) config.encoder_layers = config.layers;
  if (config.norm_eps == 0) config.norm_eps = 1e-5;
  if (config.ffn == 0) config.ffn = 4 * config.width;
}

void check_seq2seq(const ModelConfig& config) {
  if (config.positions == PositionEncoding::kRotary) check_rotary(config);
  if (config.recomputed_blocks() > 0)
    throw usage_error("seq2seq keeps all activations: leave out model.gradient_checkpointing.");
}

const AddFamily kAddSeq2Seq{{
    .name = "seq2seq",
    .make = make_family<Seq2Seq>,
    .has = {.translates = true, .own_init = true},
    .presets =
        {
            {"translate-tiny",
             {{"layers", "3"}, {"width", "256"}, {"heads", "4"}, {"ffn", "1024"}, {"dropout", "0.1"}}},
            {"translate-base",
             {{"layers", "6"}, {"width", "512"}, {"heads", "8"}, {"ffn", "2048"}, {"dropout", "0.1"}}},
        },
    .defaults = seq2seq_defaults,
    .check = check_seq2seq,
    .activations = seq2seq_activations,
    .hugging_face = seq2seq_layout(),
}};

}  // namespace

}  // namespace tightloop
