#include "partitioner/pipedream_2bw/planner.h"

#include <algorithm>
#include <tuple>

#include "partitioner/baselines/repeated_layers.h"
#include "partitioner/cost_models/layer_cost.h"
#include "partitioner/piper/planner.h"
#include "support/deadline.h"
#include "support/units.h"

namespace graphpipe::partitioner {
namespace {

const LayerDegree* undivided(const Layer& layer) {
  const auto found = std::ranges::find(layer.degrees, 1, &LayerDegree::degree);
  return found == layer.degrees.end() ? nullptr : &*found;
}

Status check_two_bw_request(const LayerPlanRequest& request) {
  if (!request.compat.empty())
    return Diagnostic{.code = Code::kUsage,
                      .origin = ModelText("--compat"),
                      .message = text("the quirk ", *request.compat.begin(), " is one of the equal split inside Piper"),
                      .hint = "add E2, which takes that for this planner, or say all"};
  if (request.graph->source == LayerSource::kDnnPartitioning)
    return Diagnostic{.code = Code::kUsage,
                      .message = "layers of a dnn-partitioning file have no weights, and their backward stands apart",
                      .hint = "join the forward and the backward of each layer first"};
  for (const Layer& layer : request.graph->layers)
    if (!layer.degrees.empty() && undivided(layer) == nullptr)
      return Diagnostic{.code = Code::kUsage,
                        .message = text("the layer ", quoted(layer.id), " has no price on one device"),
                        .hint = "use the planner piper, which divides layers over devices"};
  return Ok{};
}

class TwoBwSearch {
 public:
  TwoBwSearch(const LayerPlanRequest& request, const Deadline& deadline)
      : request_(request),
        graph_(*request.graph),
        deadline_(deadline),
        layers_(repeated_layers(graph_)),
        micro_batches_(std::max<int64_t>(1, request.micro_batches)),
        is_measured_(std::ranges::any_of(graph_.layers, [](const Layer& layer) {
          const LayerDegree* degree = undivided(layer);
          return degree != nullptr && degree->variants.size() > 1;
        })) {}

  Result<LayerPlanAnswer> run() {
    const double work = least_work();
    if (work == 0)
      return Diagnostic{.code = Code::kUsage,
                        .message = "no layer takes any time, so that there is no throughput",
                        .hint = "measure the profile again"};
    search(work);
    if (best_.bottleneck == kInfinity) return no_plan();
    LayerPlanAnswer answer{.plan = plan_of(best_), .terms = terms_of(best_.width)};
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

  LayerTerms terms_of(int width) const {
    return {.score = LayerScore::kThroughput,
            .convention = {.overlap = Overlap::kMaxWithReduction,
                           .cut = CutRule::kStageMessages,
                           .copies = CopiesRule::kTwoVersions,
                           .communication_scale = request_.charge_traffic ? 1.0 : 0.0,
                           .level_of_devices = true,
                           .reduction_factor = 2,
                           .reduction_every = micro_batches_ / width * width}};
  }

  LayerPlan plan_of(const Split& split) const {
    LayerPlan plan;
    plan.micro_batches = micro_batches_;
    for (const auto& run : equal_stages(layers_, static_cast<size_t>(split.depth), Ends::kJoined)) {
      LayerStage stage{.replicas = split.width, .recompute = split.recompute && !is_measured_};
      for (const uint32_t layer : run) {
        stage.layers.emplace_back(layer);
        if (!split.recompute || !is_measured_) continue;
        const LayerDegree* degree = undivided(graph_.layers[LayerId(layer)]);
        stage.variants.push_back(degree != nullptr ? static_cast<int>(degree->variants.size()) - 1 : 0);
      }
      const auto place = static_cast<int>(plan.stages.size());
      for (int i = 0; i < split.width; ++i)
        stage.devices.push_back(split.by_pipeline ? i * split.depth + place : place * split.width + i);
      plan.stages.push_back(std::move(stage));
    }
    return plan;
  }

  LayerPlanPrice price_of(const Split& split) const {
    return price_layer_plan(graph_, plan_of(split), request_.machine, terms_of(split.width).convention);
  }

  /// Seconds of the whole graph on one device.
  double least_work() const {
    const double plain = price_of({}).stages.front().compute;
    return request_.recompute ? std::min(plain, price_of({.recompute = true}).stages.front().compute) : plain;
  }

  // Most devices first: where even a perfect division over so many is slower than the best, it is over fewer too.
  void search(double work) {
    const auto runs = static_cast<int>(std::min<size_t>(layers_.repeated.size(), static_cast<size_t>(devices())));
    for (int used = devices(); used >= (request_.use_fewer ? 1 : devices()); --used) {
      if (work / used > best_.bottleneck) return;
      for (int depth = 1; depth <= std::min(runs, used); ++depth) {
        if (used % depth != 0) continue;
        if (tried_ > 0 && deadline_.passed()) {  // one is tried in no time, and gives a plan
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
    const LayerPlanPrice price = price_of(split);
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

  const LayerPlanRequest& request_;
  const LayerGraph& graph_;
  const Deadline& deadline_;
  const RepeatedLayers layers_;
  const int64_t micro_batches_;
  /// The layers say what recomputing costs.
  const bool is_measured_;
  Split best_;
  double shortfall_ = kInfinity;
  bool too_few_micro_batches_ = false, complete_ = true;
  int64_t tried_ = 0;
};

}  // namespace

std::span<const Quirk> two_bw_quirks() {
  static const std::vector<Quirk> kQuirks = [] {
    std::vector<Quirk> quirks{{"E2", "the stand-in that Piper's authors measured: the equal split in Piper's terms"}};
    quirks.insert(quirks.end(), piper_quirks().begin(), piper_quirks().end());
    return quirks;
  }();
  return kQuirks;
}

Result<LayerPlanAnswer> plan_two_bw(const LayerPlanRequest& request) {
  if (request.has("E2")) return plan_equal_split_layers(request);
  GP_TRY_VOID(check_two_bw_request(request));
  const Deadline deadline(request.time_limit, request.cancel);
  return TwoBwSearch(request, deadline).run();
}

}  // namespace graphpipe::partitioner
