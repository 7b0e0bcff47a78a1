#include "partitioner/pipedream_2bw/planner.h"

#include <algorithm>
#include <tuple>

#include "partitioner/baselines/repeated_layers.h"
#include "partitioner/cost_models/plan_price.h"
#include "partitioner/cost_models/quirks.h"
#include "partitioner/piper/planner.h"
#include "support/deadline.h"
#include "support/units.h"

namespace graphpipe::partitioner {
namespace {

Status check_two_bw_request(const UnitRequest& request) {
  if (!request.compat.empty())
    return Diagnostic{.code = Code::kUsage,
                      .origin = ModelText("--compat"),
                      .message = text("the quirk ", *request.compat.begin(), " is one of the equal split inside Piper"),
                      .hint = "add E2, which takes that for this planner, or say all"};
  for (const ir::PlanNode& node : request.prices->graph->nodes) {
    if (node.is_backward)
      return Diagnostic{.code = Code::kUsage,
                        .message = text("the backward layer ", quoted(node.label), " stands apart from its forward"),
                        .hint = "join the forward and the backward of each layer first"};
    if (!node.alternatives.empty() && alternatives_of(node, 1).empty())
      return Diagnostic{.code = Code::kUsage,
                        .message = text("the layer ", quoted(node.label), " has no price on one device"),
                        .hint = "use the planner piper, which divides layers over devices"};
  }
  return Ok{};
}

class TwoBwSearch {
 public:
  TwoBwSearch(const UnitRequest& request, const Deadline& deadline)
      : request_(request),
        prices_(*request.prices),
        deadline_(deadline),
        layers_(repeated_layers(prices_)),
        micro_batches_(std::max<int64_t>(1, request.micro_batches)),
        is_measured_(std::ranges::any_of(
            prices_.graph->nodes, [](const ir::PlanNode& node) { return alternatives_of(node, 1).size() > 1; })) {}

  Result<UnitAnswer> run() {
    const double work = min_work();
    if (work == 0)
      return Diagnostic{.code = Code::kUsage,
                        .message = "no layer takes any time, so that there is no throughput",
                        .hint = "measure the profile again"};
    search(work);
    if (best_.bottleneck == kInfinity) return no_plan();
    UnitAnswer answer{.plan = plan_of(best_), .model = model_of(best_.width)};
    answer.unit = "1/s";
    answer.larger_is_better = true;
    answer.objective = 1 / best_.bottleneck;
    answer.complete = complete_;
    answer.bound = complete_ ? answer.objective : std::max(answer.objective, devices() / work);
    if (!complete_) answer.stopped = deadline_.reason();
    answer.states = tried_;
    answer.search_seconds = deadline_.seconds();
    return answer;
  }

 private:
  struct Split {
    int depth = 1, width = 1;
    bool recompute = false;
    /// Devices of a pipeline, not of a stage, have neighbouring numbers.
    bool by_pipeline = false;
    double bottleneck = kInfinity;
    auto rank() const { return std::tuple(bottleneck, depth, width, recompute, by_pipeline); }
  };

  int devices() const { return request_.machine.devices(); }

  CostModel model_of(int width) const {
    return {.score = Score::kThroughput,
            .overlap = Overlap::kMaxWithReduction,
            .traffic = TrafficRule::kStageMessages,
            .memory = MemoryRule::kTwoVersions,
            .communication_scale = request_.charge_traffic ? 1.0 : 0.0,
            .level_of_devices = true,
            .reduction_factor = 2,
            .reduction_every = micro_batches_ / width * width};
  }

  ir::Assignment plan_of(const Split& split) const {
    ir::Assignment plan;
    for (const auto& run : equal_stages(layers_, static_cast<size_t>(split.depth), Ends::kJoined)) {
      const size_t stage = plan.choice.size();
      ir::StageChoice choice{.recompute = split.recompute && !is_measured_};
      for (int i = 0; i < split.width; ++i) {
        const int place = static_cast<int>(stage);
        choice.devices.emplace_back(
            static_cast<size_t>(split.by_pipeline ? i * split.depth + place : place * split.width + i));
      }
      std::vector<int> variants;
      if (split.recompute && is_measured_)
        for (const uint32_t layer : run)
          variants.push_back(std::max(0, static_cast<int>(alternatives_of(prices_.node(layer), 1).size()) - 1));
      add_stage(prices_, run, std::move(choice), variants, plan);
    }
    return plan;
  }

  PlanPrice price_of(const Split& split) const {
    return price_plan(prices_, plan_of(split), request_.machine, model_of(split.width));
  }

  /// Seconds of the whole graph on one device.
  double min_work() const {
    const double plain = price_of({}).stages.front().compute;
    return request_.recompute ? std::min(plain, price_of({.recompute = true}).stages.front().compute) : plain;
  }

  // From most devices down: once even a perfect division of the work is slower than the best plan, one over fewer
  // devices is too.
  void search(double work) {
    const auto runs = static_cast<int>(std::min<size_t>(layers_.repeated.size(), static_cast<size_t>(devices())));
    for (int used = devices(); used >= (request_.use_fewer ? 1 : devices()); --used) {
      if (work / used > best_.bottleneck) return;
      for (int depth = 1; depth <= std::min(runs, used); ++depth) {
        if (used % depth != 0) continue;
        if (tried_ > 0 && deadline_.passed()) {  // the first split takes no time, and gives a plan
          complete_ = false;
          return;
        }
        try_split(depth, used / depth);
      }
    }
  }

  void try_split(int depth, int width) {
    if (width > 1 && !request_.replication) return;
    if (micro_batches_ / width < depth) {
      too_few_micro_batches_ = true;
      return;
    }
    const bool places_differ = width > 1 && depth > 1 && request_.machine.levels.size() > 1;
    for (const bool recompute : {false, true})
      for (const bool by_pipeline : {false, true}) {
        if ((recompute && !request_.recompute) || (by_pipeline && !places_differ)) continue;
        consider({.depth = depth, .width = width, .recompute = recompute, .by_pipeline = by_pipeline});
      }
  }

  void consider(Split split) {
    const PlanPrice price = price_of(split);
    ++tried_;
    split.bottleneck = price.bottleneck;
    if (price.shortfall > 0) shortfall_ = std::min(shortfall_, price.shortfall);
    else if (split.rank() < best_.rank()) best_ = split;
  }

  Diagnostic no_plan() const {
    if (!complete_)
      return {.code = Code::kInterrupted,
              .message = deadline_.reason() + " before any plan was found",
              .hint = "give the search more time"};
    Diagnostic none{.code = Code::kNoFeasiblePlan};
    if (shortfall_ < kInfinity) {
      none.message = text("no pipelines of equal runs fit ", request_.machine.memory, " bytes a device: ", shortfall_,
                          " bytes more are needed");
      none.hint = "give the devices more memory, or use the planner piper";
    } else if (too_few_micro_batches_) {
      none.message = text(micro_batches_, " micro-batches of a step are too few for pipelines on ", devices(),
                          " devices: each needs as many as it has stages");
      none.hint = "have more micro-batches in a step, or let the plan use fewer devices (--use-fewer)";
    } else {
      none.message = text(layers_.repeated.size(), " repeated layers make no equal pipelines on all ", devices(),
                          " devices", request_.replication ? "" : " without replicas");
      none.hint = "let the plan use fewer devices (--use-fewer)";
    }
    return none;
  }

  const UnitRequest& request_;
  const UnitPrices& prices_;
  const Deadline& deadline_;
  const RepeatedLayers layers_;
  const int64_t micro_batches_;
  /// Whether the layers have measured alternatives that recompute.
  const bool is_measured_;
  Split best_;
  double shortfall_ = kInfinity;
  bool too_few_micro_batches_ = false, complete_ = true;
  int64_t tried_ = 0;
};

}  // namespace

std::span<const Quirk> two_bw_quirks() {
  static const std::vector<Quirk> kQuirks = [] {
    std::vector<Quirk> quirks{quirks::kEqualSplitInstead};
    quirks.insert(quirks.end(), piper_quirks().begin(), piper_quirks().end());
    return quirks;
  }();
  return kQuirks;
}

Result<UnitAnswer> plan_two_bw(const UnitRequest& request) {
  if (request.has(quirks::kEqualSplitInstead)) return plan_equal_runs(request);
  GP_TRY_VOID(check_two_bw_request(request));
  const Deadline deadline(request.time_limit, request.cancel);
  return TwoBwSearch(request, deadline).run();
}

}  // namespace graphpipe::partitioner
