#include <ATen/ops/zeros_like.h>

#include <map>

#include "ops/optim/adamw.h"
#include "train/optim/parameter_groups.h"

namespace tightloop {

namespace {

class AdamWRule : public UpdateRule {
 public:
  AdamWRule(Group group, const AdamWSettings& settings, const std::vector<bool>& decayed)
      : UpdateRule(std::move(group.name), settings.lr),
        indices_(std::move(group.indices)),
        pieces_(std::move(group.pieces)),
        betas_{settings.beta1, settings.beta2, settings.eps} {
    tensors_.masters = std::move(group.masters), tensors_.values = std::move(group.values);
    for (size_t i = 0; i < tensors_.masters.size(); ++i) {
      tensors_.first.push_back(at::zeros_like(tensors_.masters[i]));
      tensors_.second.push_back(at::zeros_like(tensors_.masters[i]));
      tensors_.rate.push_back(settings.lr);
      tensors_.decay.push_back(decayed[i] ? settings.decay : 0);
    }
  }

  void update(const std::vector<at::Tensor>& gradients, const at::Tensor& control,
              WeightChange* change) override {
    if (indices_.empty()) return;
    for (const size_t index : indices_) tensors_.gradients.push_back(gradients[index]);
    if (!change) ops::adamw_(tensors_, betas_, control);
    if (change) {
      std::map<size_t, ops::AdamwTensors> layers;
      for (size_t i = 0; i < indices_.size(); ++i) add_to(layers[change->layer_of(indices_[i])], i);
      for (const auto& [layer, piece] : layers)
        change->watch(layer, piece.masters, [&] { ops::adamw_(piece, betas_, control); });
    }
    tensors_.gradients.clear();
  }

  std::vector<StateSlice> state() const override {
    std::vector<StateSlice> slices;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      slices.push_back(pieces_[i].slice("first.", tensors_.first[i]));
      slices.push_back(pieces_[i].slice("second.", tensors_.second[i]));
    }
    return slices;
  }

 private:
  void add_to(ops::AdamwTensors& piece, size_t i) const {
    for (const auto list :
         {&ops::AdamwTensors::masters, &ops::AdamwTensors::first, &ops::AdamwTensors::second,
          &ops::AdamwTensors::gradients, &ops::AdamwTensors::values})
      (piece.*list).push_back((tensors_.*list)[i]);
    piece.rate.push_back(tensors_.rate[i]), piece.decay.push_back(tensors_.decay[i]);
  }

  std::vector<size_t> indices_;
  std::vector<GroupPiece> pieces_;
  ops::AdamwTensors tensors_;
  const ops::AdamwBetas betas_;
};

}  // namespace

std::unique_ptr<UpdateRule> adamw_rule(Group group, const AdamWSettings& settings,
                                       const std::vector<bool>& decayed) {
  return std::make_unique<AdamWRule>(std::move(group), settings, decayed);
}

}  // namespace tightloop
