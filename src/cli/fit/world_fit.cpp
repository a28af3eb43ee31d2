#include "cli/fit/world_fit.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <numeric>

#include "cli/add_choice.h"
#include "cli/at_least.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/terminal/terminal.h"

namespace tightloop::cli {

namespace {

bool joins_machines(LinkKind kind) { return is_one_of(kind, {LinkKind::k100Gbe, LinkKind::k400Gbe}); }

std::string megabytes(double bytes) { return fmt::format("{:.1f} MB", bytes / 1e6); }
std::string milliseconds(double seconds) { return fmt::format("{:.2f} ms", 1e3 * seconds); }

double tokens_of(const Recipe& recipe) {
  return static_cast<double>(recipe.train.micro_batch * recipe.train.accumulate * recipe.data.seq_len);
}

/// The part of the communication that computing does not wait for.
double hidden(const SimulatedStep& step) {
  return step.communication > 0 ? 1 - step.exposed() / step.communication : 1;
}

std::string bucket_table(const StepPrediction& found) {
  std::string text = fmt::format("{:>7} {:>11} {:>9} {:>11} {:>11} {:>11}   gradients of\n", "bucket", "size",
                                 "takes", "ready", "begins", "ends");
  for (size_t i = 0; i < found.plan.buckets.size(); ++i) {
    const PlannedBucket& bucket = found.plan.buckets[i];
    const BucketTimes& times = found.step.buckets[i];
    text += fmt::format("{:>7} {:>11} {:>9.2f} {:>11.2f} {:>11.2f} {:>11.2f}   {}\n", i,
                        megabytes(bucket.gradient_bytes), 1e3 * found.schedule.buckets[i].reduce,
                        1e3 * times.ready, 1e3 * times.reduce_begin, 1e3 * times.reduce_end,
                        bucket.first == bucket.last ? bucket.first : bucket.first + " to " + bucket.last);
  }
  return text;
}

std::vector<std::string> assumptions(const Recipe& recipe, const Network& network,
                                     const StepPrediction& found, const ComputeTimes& times) {
  std::vector<std::string> list = network.assumptions();
  list.push_back(times.source);
  list.push_back(
      "All processes compute at the same speed. A bucket is ready when backward has passed its first layer, "
      "by the FLOPs of products and attention; communication takes nothing from computing.");
  if (recipe.dist.shard != Sharding::kNone)
    list.push_back(fmt::format("A process does up to {:.1f} % of the update, by its cost.",
                               100 * found.plan.update_share));
  return list;
}

}  // namespace

void WorldQuestion::add_to(CLI::App& verb) {
  verb.add_option(
          "--world", world,
          "Processes that train together: memory and bytes of each; with --link and --step-ms the step's "
          "time, too")
      ->default_str("")
      ->check(at_least(1));
  add_choice(verb, "--link", link,
             "What joins them: nvlink or pcie4 inside a machine; 100gbe or 400gbe between machines, with "
             "--inside in each");
  verb.add_option("--gpus-per-node", per_node, "GPUs of a machine")
      ->capture_default_str()
      ->check(at_least(1));
  add_choice(verb, "--inside", inside, "What joins the GPUs of a machine where --link is a network",
             {LinkKind::kNvlink, LinkKind::kPcie4});
  verb.add_option("--cards", cards, "Network cards of a machine, all used")
      ->capture_default_str()
      ->check(at_least(1));
  verb.add_option("--gbit", gbit, "Gb/s that --link was measured to reach, in place of what it stands for")
      ->default_str("")
      ->check(at_least(1e-6));
  verb.add_option("--latency-us", latency_us, "Microseconds for each message through --link")
      ->default_str("")
      ->check(at_least(0));
  verb.add_option("--step-ms", step.step_ms,
                  "Milliseconds of a measured step on one GPU, with one micro-batch ('tightloop bench step')")
      ->default_str("")
      ->check(at_least(1e-6));
  verb.add_option("--update-ms", step.update_ms, "Of which so many are the update")
      ->default_str("")
      ->check(at_least(0));
  verb.add_option("--run", step.run, "A run whose metrics have the times of forward, backward and update");
  verb.add_flag("--buckets", buckets, "A table of the gradients' buckets: their sizes and times");
  verb.add_option("--tflops", step.tflops,
                  "The GPU's peak, for an estimate where no step was measured; without it train.device's")
      ->default_str("")
      ->check(at_least(1e-6));
}

Network WorldQuestion::network(bool nccl) const {
  const LinkKind kind = link.value_or(LinkKind::k400Gbe);
  const bool across = joins_machines(kind);
  if (!across && world > per_node)
    throw usage_error(
        "--link {} joins the GPUs of one machine, which has {} (--gpus-per-node), and --world is {}. Name "
        "the "
        "network between machines: --link 400gbe.",
        name_of(kind), per_node, world);
  LinkSpeed speed = speed_of(kind);
  if (gbit > 0) speed.peak = gbit * 1e9 / 8, speed.efficiency = 1;
  if (latency_us >= 0) speed.latency = latency_us / 1e6;
  return {.world = world,
          .per_node = std::min(per_node, world),
          .cards = cards,
          .inside = across ? speed_of(inside) : speed,
          .between = across ? speed : LinkSpeed{},
          .trees = nccl};
}

WorldPrediction predict(const WorldQuestion& asked, const Recipe& recipe, const TrainingMemory& memory) {
  const Network network = asked.network(memory.cuda);
  BucketPlan plan = plan_buckets(recipe, network.world, memory.compute, memory.written.chunked);
  const bool measurable = asked.step.says_speed() || device(recipe.train.device).is_cuda();
  const ComputeTimes times =
      measurable ? compute_times(asked.step, recipe, plan, memory.written.recomputed, memory.compute)
                 : ComputeTimes{};
  const char* untimed =
      !asked.link
          ? "For the step's time say what joins the processes: --link nvlink, pcie4, 100gbe or 400gbe."
      : !measurable
          ? "For the step's time say how long one GPU computes, which cannot be measured on this CPU: "
            "--step-ms of a measured step ('tightloop bench step'), --run, or --tflops for an estimate."
          : "";
  return {network, times, predict_step(recipe, std::move(plan), network, times), untimed, asked.buckets};
}

std::string text_of(const WorldPrediction& prediction, const Recipe& recipe) {
  const auto& [network, times, found, untimed, buckets] = prediction;
  const SimulatedStep& step = found.step;
  const auto world = static_cast<double>(network.world);
  std::string text = fmt::format(
      "{}, dist.shard {}, dist.reduce {}, train.accumulate {}.\n",
      untimed.empty()
          ? fmt::format("{} on {}", counted(network.world, "GPU"), counted(network.nodes(), "machine"))
          : fmt::format("{} processes", network.world),
      name_of(recipe.dist.shard), name_of(recipe.dist.reduce), recipe.train.accumulate);
  text += fmt::format("A process sends {} of gradients", megabytes(found.reduced_bytes));
  if (found.gathered_bytes > 0) text += fmt::format(" and {} of weights", megabytes(found.gathered_bytes));
  text += fmt::format(" a step, in {}.\n", counted(found.plan.buckets.size(), "bucket"));
  if (!untimed.empty()) return text + untimed + "\n";
  text += fmt::format(
      "Step: {} = {} of computing + {} of waiting. Communication takes {}, of which {:.1f} % is hidden. "
      "Without "
      "overlap: {}.\n",
      milliseconds(step.step), milliseconds(step.compute), milliseconds(step.exposed()),
      milliseconds(step.communication), 100 * hidden(step), milliseconds(found.without_overlap));
  text += fmt::format("{} tokens/s, {:.1f} times what one process does alone: {:.1f} % of {}.\n",
                      human_count(world * tokens_of(recipe) / step.step), world * found.alone / step.step,
                      100 * found.alone / step.step, network.world);
  if (buckets) text += "\nMilliseconds since the update before:\n" + bucket_table(found);
  text += "\nTaken for granted:\n";
  for (const auto& line : assumptions(recipe, network, found, times)) text += "- " + line + "\n";
  return text;
}

nlohmann::ordered_json json_of(const WorldPrediction& prediction, const Recipe& recipe) {
  using Json = nlohmann::ordered_json;
  const auto& [network, times, found, untimed, table] = prediction;
  const SimulatedStep& step = found.step;
  const Json bytes{{"world", network.world},
                   {"shard", name_of(recipe.dist.shard)},
                   {"accumulate", recipe.train.accumulate},
                   {"sent_gradient_bytes", static_cast<int64_t>(found.reduced_bytes)},
                   {"sent_weight_bytes", static_cast<int64_t>(found.gathered_bytes)},
                   {"untimed", untimed}};
  if (!untimed.empty()) return bytes;
  Json buckets = Json::array();
  for (size_t i = 0; i < found.plan.buckets.size(); ++i) {
    const PlannedBucket& bucket = found.plan.buckets[i];
    const BucketTimes& at = step.buckets[i];
    buckets.push_back({{"first", bucket.first},
                       {"last", bucket.last},
                       {"bytes", static_cast<int64_t>(bucket.gradient_bytes)},
                       {"reduce_ms", 1e3 * found.schedule.buckets[i].reduce},
                       {"gather_ms", 1e3 * found.schedule.buckets[i].gather},
                       {"gathered_at_ms", 1e3 * at.gather_end},
                       {"ready_at_ms", 1e3 * at.ready},
                       {"begins_at_ms", 1e3 * at.reduce_begin},
                       {"ends_at_ms", 1e3 * at.reduce_end}});
  }
  return {{"world", network.world},
          {"nodes", network.nodes()},
          {"shard", name_of(recipe.dist.shard)},
          {"accumulate", recipe.train.accumulate},
          {"sent_gradient_bytes", static_cast<int64_t>(found.reduced_bytes)},
          {"sent_weight_bytes", static_cast<int64_t>(found.gathered_bytes)},
          {"forward_ms", 1e3 * found.schedule.forward},
          {"backward_ms", 1e3 * found.schedule.backward},
          {"update_ms", 1e3 * found.schedule.update},
          {"step_ms", 1e3 * step.step},
          {"compute_ms", 1e3 * step.compute},
          {"communication_ms", 1e3 * step.communication},
          {"exposed_ms", 1e3 * step.exposed()},
          {"hidden", hidden(step)},
          {"without_overlap_ms", 1e3 * found.without_overlap},
          {"efficiency", found.alone / step.step},
          {"tokens_per_second", static_cast<double>(network.world) * tokens_of(recipe) / step.step},
          {"buckets", buckets},
          {"assumptions", assumptions(recipe, network, found, times)}};
}

}  // namespace tightloop::cli
