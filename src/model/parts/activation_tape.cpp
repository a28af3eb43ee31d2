#include "model/parts/activation_tape.h"

#include <algorithm>

namespace tightloop {

BlockMemory Tape::run(double input, double stream) const {
  BlockMemory memory{.input = input};
  for (const Step& step : steps_) memory.kept += step.kept;
  double alive = memory.kept, flowing = 0;  // what enters a branch's end is the stream's gradient itself
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    memory.backward = std::max(memory.backward, alive + stream + flowing + step->made + step->working);
    alive -= step->kept;
    flowing = step->branches ? 0 : step->made;
  }
  return memory;
}

void fused_attention(Tape& tape, const BlockSizes& s, double inputs, bool masked) {
  const double mask =
      masked ? s.e * static_cast<double>(s.shape.length) * static_cast<double>(s.shape.length) : 0;
  const double sums = s.e < 4 ? 4 / s.e * s.q : 0;
  const double by_head = s.config.heads != s.config.kv_heads ? 2 * s.q : 0;
  tape.add(inputs + s.q + s.floats(s.config.heads) + mask, s.qkv, sums + by_head);
}

void dropped_attention(Tape& tape, const BlockSizes& s) {
  const double square = static_cast<double>(s.shape.length) * static_cast<double>(s.shape.length);
  const double weights = s.e * static_cast<double>(s.shape.rows * s.config.heads) * square;
  tape.add(2 * s.q, s.qkv);
  tape.add(square, weights);
  tape.add(weights, weights);
  tape.add(0, weights);
  tape.add(weights + s.q, weights + s.q);
  tape.add(s.q, s.q);
}

void end_branch(Tape& tape, const BlockSizes& s) {
  if (s.config.dropout > 0) tape.add(0, s.D);
}

BlockMemory begun_with_a_sum(const Tape& tape, const BlockSizes& s, int64_t layer) {
  auto memory = tape.run(layer == 0 ? s.D : 2 * s.D, s.D);
  if (layer > 0) memory.apart = memory.input;
  return memory;
}

}  // namespace tightloop
