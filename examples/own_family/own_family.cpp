// A model family of one's own, trained by the Trainer: attention and feed-forward layer side by side on one
// norm, and ALiBi in place of positions (scores fall with the distance, by a slope of each head's own).
//   own_family RECIPE TEXT RUN
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/exp2.h>
#include <fmt/format.h>
#include <tightloop/error.h>
#include <tightloop/family.h>
#include <tightloop/infer.h>
#include <tightloop/log.h>
#include <tightloop/ops.h>
#include <tightloop/trainer.h>

#include <cstdio>

using namespace tightloop;

namespace {

class Parallel : public LanguageModel {
 public:
  Parallel(const ModelConfig& config, Seed seed) : LanguageModel(config, seed) {
    const int64_t D = config.width, F = config.ffn;
    const Init ones{Init::kOnes}, normal{Init::kNormal, config.init_std};
    using enum ParameterRole;  // what a parameter is for: optimizers, LoRA, sizes and memory go by that
    embedding_ = parameters_.add("embedding", {config.vocab_size, D}, normal, kEmbedding);
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      const auto name = [&](const char* part) { return fmt::format("blocks.{}.{}", layer, part); };
      blocks_.push_back({.norm = parameters_.add(name("norm"), {D}, ones, kNorm),
                         .qkv = parameters_.add(name("qkv"), {3 * D, D}, normal, kMatrix, {D, D, D}),
                         .out = parameters_.add(name("out"), {D, D}, normal, kMatrix),
                         .up = parameters_.add(name("up"), {F, D}, normal, kMatrix),
                         .down = parameters_.add(name("down"), {D, F}, normal, kMatrix)});
    }
    final_norm_ = parameters_.add("final_norm", {D}, ones, kNorm);
  }

  Forward forward(const at::Tensor& ids_BT, const Pass& pass) override {
    const auto scope = std::make_shared<AttentionScope>(ids_BT, pass, config_.dropout);
    BlockInputs state{.residual = ops::embedding(embedding_, ids_BT)};
    const auto bias = alibi(ids_BT, scope->past()).to(state.residual.scalar_type());
    for (int64_t layer = 0; layer < config_.layers; ++layer) {
      const auto block = [this, layer, scope, bias](const BlockInputs& in) {
        return this->block(in, layer, *scope, bias);
      };
      state.residual = run_block(layer, pass, block, state).residual;  // again in backward, where asked for
    }
    if (pass.cache) pass.cache->advance(ids_BT.size(1));
    return {ops::rms_norm(state.residual, final_norm_, config_.norm_eps)};
  }
  Head head() const override { return {embedding_, config_.softcap}; }

 private:
  struct Block {
    at::Tensor norm, qkv, out, up, down;
  };

  /// (1, H, T, past + T)
  at::Tensor alibi(const at::Tensor& ids_BT, int64_t past) const {
    // On the device: a copy from ordinary memory cannot be captured in a CUDA graph.
    const auto heads = at::arange(1, config_.heads + 1, ids_BT.options().dtype(at::kFloat));
    const auto slopes = at::exp2(heads * (-8.0 / static_cast<double>(config_.heads)));
    const auto keys = at::arange(past + ids_BT.size(1), ids_BT.options());
    return slopes.view({1, -1, 1, 1}) * (keys - keys.narrow(0, past, ids_BT.size(1)).unsqueeze(1));
  }

  BlockOutputs block(const BlockInputs& in, int64_t layer, AttentionScope& scope,
                     const at::Tensor& bias) const {
    const Block& block = blocks_[layer];
    const int64_t B = in.residual.size(0), T = in.residual.size(1), H = config_.heads;
    const auto x = ops::rms_norm(in.residual, block.norm, config_.norm_eps);
    const auto qkv = ops::linear(x, block.qkv).view({B, T, 3 * H, config_.head_size}).split(H, 2);
    const auto seen = scope.attend(qkv[0], qkv[1], qkv[2], layer, {.bias_BHTP = bias});
    const auto inner = ops::activation(ops::linear(x, block.up), {}, ops::ActivationKind::kGeluTanh);
    return {.residual = in.residual + ops::linear(seen, block.out) + ops::linear(inner, block.down)};
  }

  at::Tensor embedding_, final_norm_;
  std::vector<Block> blocks_;
};

void defaults(ModelConfig& config) {
  if (config.dropout != 0) throw usage_error("parallel has no dropout: leave out model.dropout.");
  config.tie_embeddings = true;
  if (config.ffn == 0) config.ffn = 4 * config.width;
}

// The line that makes it known: model.family in recipes, the Trainer, checkpoints, generation.
const AddFamily kAddParallel{{.name = "parallel", .make = make_family<Parallel>, .defaults = defaults}};

void run(const std::string& recipe_file, const std::string& text, const std::string& folder) {
  Recipe recipe;
  Config config = recipe.bind();
  config.load(recipe_file);
  config.apply({"--data.train", text});
  Trainer trainer(recipe, RunFolder::create(folder, /*overwrite=*/true));
  const TrainResult result = trainer.run();
  log::shut_down();

  LoadedRun loaded = load_model(folder, "cpu");
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.sampling.max_tokens = 12;
  const Prompt prompt{loaded.tokenizer->encode("The loop is")};
  const auto made = generate(*loaded.model, {&prompt, 1}, options);
  std::printf("the saved model goes on: The loop is%s\n", loaded.tokenizer->decode(made[0].ids).c_str());
  std::printf("own_family: loss %.3f to %.3f in %d steps\n", result.losses.front(), result.losses.back(),
              static_cast<int>(result.step));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: own_family RECIPE TEXT RUN\n");
    return 2;
  }
  try {
    run(argv[1], argv[2], argv[3]);
  } catch (const Error& error) {
    std::fprintf(stderr, "own_family: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
