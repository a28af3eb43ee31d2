#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros_like.h>

#include "train/update_rules.h"

namespace tightloop {

namespace {

class AdamWRule : public UpdateRule {
 public:
  AdamWRule(Group group, const AdamWSettings& settings) : group_(std::move(group)), settings_(settings) {
    for (const auto& master : group_.masters) {
      first_.push_back(at::zeros_like(master));
      second_.push_back(at::zeros_like(master));
    }
  }

  void update(const std::vector<at::Tensor>& gradients, const at::Tensor& divisor, const at::Tensor& count,
              const Rates& rates) override {
    std::vector<at::Tensor> own;
    for (const size_t index : group_.indices) own.push_back(gradients[index]);
    const std::vector<at::Tensor> counts(own.size(), count);
    at::_fused_adamw_(group_.masters, own, first_, second_, {}, counts, settings_.lr * rates.share,
                      settings_.beta1, settings_.beta2, settings_.decay, settings_.eps, /*amsgrad=*/false,
                      /*maximize=*/false, divisor);
  }

  NamedTensors state() const override {
    NamedTensors named;
    for (size_t i = 0; i < first_.size(); ++i) {
      named.emplace_back("first." + group_.names[i], first_[i]);
      named.emplace_back("second." + group_.names[i], second_[i]);
    }
    return named;
  }

 private:
  Group group_;
  const AdamWSettings settings_;
  std::vector<at::Tensor> first_, second_;
};

}  // namespace

std::unique_ptr<UpdateRule> adamw_rule(Group group, const AdamWSettings& settings) {
  return std::make_unique<AdamWRule>(std::move(group), settings);
}

}  // namespace tightloop
