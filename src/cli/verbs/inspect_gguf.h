#pragma once

namespace CLI {
class App;
}

namespace tightloop::cli {

/// Adds "inspect gguf FILE".
void add_inspect_gguf(CLI::App& inspect);

}  // namespace tightloop::cli
