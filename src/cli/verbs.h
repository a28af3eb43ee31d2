#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tightloop::cli {

/// Parses the command line, runs one verb, prints errors as sentences. Returns the exit code.
int run(int argc, char** argv);

/// Thrown to end the program with an exit code after everything was said.
struct Stop {
  int exit_code;
};

/// Settings of a recipe from the command line, as Config::apply() takes them.
using Settings = std::vector<std::string>;

// One file a verb, each adds itself and its options to the program.
void add_doctor(CLI::App& app);
void add_config(CLI::App& app, const Settings& settings);
void add_tokenizer(CLI::App& app);
void add_train(CLI::App& app, const Settings& settings);
void add_eval(CLI::App& app, const Settings& settings);
void add_generate(CLI::App& app);
void add_fit(CLI::App& app, const Settings& settings);
void add_model(CLI::App& app, const Settings& settings);
void add_chat(CLI::App& app, const Settings& settings);
void add_serve(CLI::App& app);
void add_report(CLI::App& app);
void add_inspect(CLI::App& app, const Settings& settings);
void add_export(CLI::App& app);
void add_average(CLI::App& app);
void add_checkpoint(CLI::App& app);
void add_bleu(CLI::App& app);
void add_translate(CLI::App& app);
void add_bench(CLI::App& app, const Settings& settings);
void add_bench_step(CLI::App& bench, const Settings& settings);
void add_bench_ablation(CLI::App& bench, const Settings& settings);
void add_bench_translate(CLI::App& bench, const Settings& settings);
void add_bench_update(CLI::App& bench, const Settings& settings);
void add_bench_chat(CLI::App& bench);
void add_bench_ops(CLI::App& bench);
void add_bench_loader(CLI::App& bench, const Settings& settings);
void add_bench_generate(CLI::App& bench);
void add_data(CLI::App& app, const Settings& settings);
void add_data_order(CLI::App& data, const Settings& settings);
void add_data_render(CLI::App& data);
void add_data_sample(CLI::App& data, const Settings& settings);
/// What runs write about themselves.
void add_runs(CLI::App& app);
void add_top(CLI::App& app);
void add_prepare(CLI::App& app, const Settings& settings);
/// For whoever packages the program: scripts for shells, a manual page. Not in the help.
void add_completion(CLI::App& app);

}  // namespace tightloop::cli
