#include "train/report/metric_table.h"

#include <fmt/format.h>

#include <cmath>

#include "core/files.h"
#include "support.h"
#include "train/report/metrics.h"
#include "train/report/progress.h"
#include "train/train_config.h"

namespace tightloop::testing {
namespace {

/// The table of docs/metrics.md, as the program's own table has it.
std::string documented_table() {
  const LogConfig log;
  const TrainConfig train;
  std::string text = "| name | what it is | every |\n|---|---|---|\n";
  for (const Metric& metric : metric_table()) {
    std::string every = fmt::format("`train.logging_steps` ({})", train.logging_steps);
    if (metric.every == &Due::detail) every = fmt::format("`log.detail_steps` ({})", log.detail_steps);
    if (metric.every == &Due::memory) every = fmt::format("`log.memory_steps` ({})", log.memory_steps);
    if (metric.every == &Due::flops)
      every = fmt::format("the first line and `log.flops_steps` ({})", log.flops_steps);
    if (metric.every == &Due::datasets)
      every = fmt::format("`log.dataset_metrics_steps` ({})", log.dataset_metrics_steps);
    if (metric.name.starts_with("eval/")) every = "`train.eval_steps`";
    if (metric.name.starts_with("eval/suite/") || metric.name == "eval/core") every = "`eval.suite_steps`";
    if (metric.name == "global_step" || metric.name == "time") every = "in each line";
    text += fmt::format("| `{}` | {} | {} |\n", metric.name, metric.help, every);
  }
  return text;
}

TEST(MetricTable, IsThatOfTheDocumentation) {
  const auto page = read_file(testing::source_folder() / "docs/metrics.md");
  EXPECT_NE(page.find("\n\n" + documented_table() + "\n"), std::string::npos)
      << "docs/metrics.md is stale. Its table is:\n"
      << documented_table();
}

TEST(MetricTable, HasAllThatIsReported) {
  IntervalReport report{.step = 1, .total_steps = 2};
  report.set("training/loss", 1.5);
  EXPECT_EQ(report.number("training/loss"), 1.5);
  EXPECT_FALSE(report.number("training/lr"));
  EXPECT_THROW(report.set("training/los", 1.5), std::logic_error);
  for (const Metric& metric : metric_table())
    EXPECT_EQ(find_metric(metric.name), &metric) << metric.name << " is there twice";
}

TEST(MetricTable, SaysHowEvaluationsRead) {
  EXPECT_EQ(evaluation_text("eval/loss", 2.31449), "held-out loss 2.3145");
  EXPECT_EQ(evaluation_text("eval/accuracy", 0.9876), "accuracy 98.8 %");
  EXPECT_EQ(evaluation_text("eval/bleu", 31.204), "BLEU 31.20");
  EXPECT_EQ(evaluation_text("eval/chrf", 8.314), "chrF 8.31");
  EXPECT_EQ(evaluation_text("my/own", 1), "my/own 1.00");
}

/// One row of the table is all that Progress must know of a number from the device.
TEST(MetricTable, SaysHowProgressReducesColumns) {
  Progress progress({"a", "b"}, /*experts=*/2, /*total_steps=*/4);
  const auto step = [&](int64_t number, double loss, double tokens, double skipped) {
    progress.started({.step = number, .tokens = 10, .lr = 0.1 * static_cast<double>(number), .seconds = 1});
    if (number == 3) progress.end_line();
    StepSums sums{number, std::vector<double>(LossBuffer::kColumns), {loss, 0}, {tokens, 0}, {1, 0}, {1, 3}};
    sums.values[LossBuffer::kLoss] = loss, sums.values[LossBuffer::kTokens] = tokens;
    sums.values[LossBuffer::kCorrect] = 1, sums.values[LossBuffer::kPasses] = 2;
    sums.values[LossBuffer::kBalance] = 0.5, sums.values[LossBuffer::kSkipped] = skipped;
    sums.values[LossBuffer::kGradNorm] = static_cast<double>(number);
    sums.values[LossBuffer::kForward] = 0.25 * static_cast<double>(number);
    return progress.arrived(sums);
  };
  EXPECT_FALSE(step(1, 8, 4, 0));
  EXPECT_FALSE(step(2, NAN, 100, 1));
  EXPECT_EQ(progress.running().number("training/loss"), 2.0) << "a loss that is not finite is left out";
  const auto report = step(3, 12, 6, 0);
  ASSERT_TRUE(report);
  const auto values = values_of(*report, false);
  EXPECT_EQ(values.at("training/loss"), 2.0);
  EXPECT_EQ(values.at("training/accuracy"), 0.2);
  EXPECT_EQ(values.at("training/loss/a"), 2.0);
  EXPECT_FALSE(values.contains("training/loss/b")) << "it had no token";
  EXPECT_EQ(values.at("training/tokens/a"), 1.0);
  EXPECT_EQ(values.at("training/tokens/b"), 0.0);
  EXPECT_EQ(values.at("training/mean_loss"), 2.0);
  EXPECT_FALSE(values.contains("perf/communication")) << "of one process";
  EXPECT_EQ(values.at("training/grad_norm"), 3.0);
  EXPECT_EQ(values.at("training/skipped_steps"), 1);
  EXPECT_TRUE(values.at("training/skipped_steps").is_number_integer());
  EXPECT_EQ(values.at("training/balance_loss"), (0.5 + 0.5) / 6) << "by micro-batch";
  EXPECT_EQ(values.at("training/expert_loads"), (nlohmann::json{{0.5, 1.5}}));
  EXPECT_EQ(values.at("perf/step_time"), 0.5) << "by the device's clock";
  EXPECT_EQ(values.at("perf/forward_time"), 0.5);
  EXPECT_FALSE(values.contains("perf/backward_time")) << "no time was measured";
  EXPECT_FALSE(values.contains("training/loss_scale"));
}

}  // namespace
}  // namespace tightloop::testing
