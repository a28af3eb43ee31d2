#pragma once

namespace tightloop {
class Fields;
}

namespace tightloop::ops {

/// Section "ops" of the configuration.
struct OpsConfig {
  bool plain = false;  // every operator by its plain twin: slow, and easy to trust

  void describe(Fields& fields);
  /// Makes it so, for the whole process.
  void apply() const;
};

/// Whether operators run as their plain twins (ordinary ATen) instead of our kernels. Set it before training
/// starts.
void use_plain(bool plain);
bool plain();

}  // namespace tightloop::ops
