#include "driver/pipeline/profile_auto.h"

#include <algorithm>

#include "cost/layer_conversion.h"
#include "cost/lower_bound.h"
#include "support/run_tasks.h"
#include "support/stopwatch.h"

namespace graphpipe::driver {
namespace {

/// A planner, and whether devices may hold several runs of layers.
struct Asked {
  std::string planner;
  bool non_contiguous = false;
};

/// All whom auto asks for plan graphs, and all planners of layer graphs. The search of auto contains those of plan
/// graphs, and asks them for their best few: their own choice among these is made by the simulator of long steps.
std::vector<Asked> asked_for_profiles() {
  std::vector<Asked> all;
  for (const partitioner::PlannerEntry& row : partitioner::planners())
    if (row.asked == partitioner::AskedByAuto::kFirst) all.push_back({std::string(row.name)});
  for (const partitioner::LayerPlannerEntry& row : partitioner::layer_planners())
    if (std::ranges::find(all, row.name, &Asked::planner) == all.end()) all.push_back({std::string(row.name)});
  all.push_back({"max-throughput", true});
  return all;
}

class BestOfAll {
 public:
  BestOfAll(const Options& options, const partitioner::LayerPlanRequest& request)
      : options_(options),
        request_(request),
        seconds_for_all_(options.plan.time_limit > 0 ? options.plan.time_limit : kSecondsForAll) {
    const auto converted = cost::convert_layers(*request.graph, Samples(request.micro_batches));
    bound_ = cost::plan_bound(converted.graph, accelerators_of(request)).step(converted.graph.batch);
  }

  Result<ProfilePlan> run() const {
    Result<ProfilePlan> best = plan_profile_by_graph("auto", options_, half_of_time());
    if (!best.ok() && best.problems().front().code == Code::kUsage) return best;
    bool complete = was_complete(best);
    if (!best.ok() || !is_proven(*best)) {
      const std::vector<Asked> asked = asked_for_profiles();
      std::vector<Result<ProfilePlan>> others(asked.size(), best);
      std::vector<char> ended(asked.size(), 0);
      run_tasks(asked.size(), static_cast<int>(options_.training.threads), [&](size_t i) {
        if (best.ok() && is_over()) ended[i] = 1;
        else others[i] = ask(asked[i]);
      });
      complete = complete && std::ranges::none_of(ended, [](char was_ended) { return was_ended != 0; });
      for (Result<ProfilePlan>& other : others) {
        complete = complete && was_complete(other);
        if (!other.ok() || (!options_.output.empty() && !refuse_unwritable(options_, *other))) continue;
        if (!best.ok() || is_better(*other, *best)) best = std::move(other);
      }
    }
    if (best.ok()) present(*best, complete && !is_over());
    return best;
  }

 private:
  bool is_over() const { return watch_.seconds() >= seconds_for_all_ || request_.cancel->load(); }

  partitioner::LayerPlanRequest rest_of_time() const {
    partitioner::LayerPlanRequest rest = request_;
    rest.time_limit = std::min(request_.time_limit, std::max(0.0, seconds_for_all_ - watch_.seconds()));
    return rest;
  }

  partitioner::LayerPlanRequest half_of_time() const {
    partitioner::LayerPlanRequest half = rest_of_time();
    half.time_limit /= 2;
    return half;
  }

  Result<ProfilePlan> ask(const Asked& asked) const {
    partitioner::LayerPlanRequest request = rest_of_time();
    request.non_contiguous = asked.non_contiguous;
    Result<ProfilePlan> plan = plan_profile(asked.planner, options_, request);
    if (plan.ok() && asked.non_contiguous) plan->planner += " --non-contiguous";
    return plan;
  }

  static bool was_complete(const Result<ProfilePlan>& plan) {
    return plan.ok() ? plan->complete : plan.problems().front().code != Code::kInterrupted;
  }

  static bool is_better(const ProfilePlan& a, const ProfilePlan& b) {
    return std::pair(!a.fits, a.simulated_step) < std::pair(!b.fits, b.simulated_step);
  }

  /// Whether no plan is faster. CPUs, and other degrees and variants of layers, have prices that the bound does not
  /// know.
  bool is_proven(const ProfilePlan& best) const {
    const auto has_one_price = [](const ir::Layer& layer) {
      return layer.degrees.empty() || (layer.degrees.size() == 1 && layer.degrees.front().variants.size() == 1);
    };
    return best.simulated_step <= bound_ && request_.machine.cpus == 0 &&
           std::ranges::all_of(request_.graph->layers, has_one_price);
  }

  void present(ProfilePlan& best, bool complete) const {
    const bool plain = std::ranges::all_of(best.stages, [](const auto& s) { return s.degree == 1 && !s.on_cpu; });
    if (best.planner != "auto") best.stopped = text("found by ", best.planner);
    best.planner = "auto";
    best.objective = best.simulated_step;
    best.unit = "s";
    best.bound = plain ? bound_ : 0;
    best.gap = gap_over(best.objective, best.bound);
    best.search_seconds = watch_.seconds();
    best.complete = complete;
  }

  const Options& options_;
  const partitioner::LayerPlanRequest& request_;
  const Stopwatch watch_;
  const double seconds_for_all_;
  double bound_ = 0;
};

}  // namespace

Result<ProfilePlan> plan_profile_by_all(const Options& options, const partitioner::LayerPlanRequest& request) {
  return BestOfAll(options, request).run();
}

}  // namespace graphpipe::driver
