#include "partitioner/layers/layer_planners.h"

#include <algorithm>
#include <vector>

#include "partitioner/alpa/planner.h"
#include "partitioner/dapple/planner.h"
#include "partitioner/layers/check_layer_plan.h"
#include "partitioner/pipedream/planner.h"
#include "partitioner/pipedream_2bw/planner.h"
#include "partitioner/piper/planner.h"
#include "partitioner/tarnawski/planner.h"
#include "partitioner/torchgpipe/planner.h"
#include "support/units.h"

namespace graphpipe::partitioner {

namespace {

// The quick ones first: `auto` asks them in this order, and its time may run out.
const std::vector<LayerPlannerEntry> kLayerPlanners = {
    {"torchgpipe", "blocks of one order, balanced by moves between neighbours", torchgpipe_quirks(), plan_torchgpipe},
    {"2bw", "PipeDream-2BW: the largest throughput of equal runs of the repeated layers, w whole pipelines of d stages",
     two_bw_quirks(), plan_two_bw},
    {"equal-split",
     "equal runs of the repeated layers, the same replicas and recomputation everywhere, in Piper's terms",
     piper_quirks(), plan_equal_split_layers},
    {"alpa",
     "Alpa between operators: the smallest sum of stage times and waiting for the largest, on submeshes",
     {},
     plan_alpa},
    {"dapple", "the largest speed-up of a synchronous iteration, stages placed on machines", dapple_quirks(),
     plan_dapple},
    {"pipedream", "the smallest bottleneck per mini-batch, replicated stages on levels of a machine",
     pipedream_quirks(), plan_pipedream},
    {"max-throughput", "Tarnawski et al.: the smallest maximum load of accelerators and CPUs, one run of layers each",
     max_throughput_quirks(), plan_max_throughput},
    {"piper", "stages of any downsets, with tensor-parallel degree, replicas and recomputation by layer",
     piper_quirks(), plan_piper},
};

}  // namespace

double LayerPlanAnswer::gap() const {
  const double better = larger_is_better ? objective : bound, worse = larger_is_better ? bound : objective;
  if (worse <= better) return 0;
  return better > 0 ? worse / better - 1 : kInfinity;
}

std::span<const LayerPlannerEntry> layer_planners() { return kLayerPlanners; }

const LayerPlannerEntry* find_layer_planner(std::string_view name) {
  const auto found = std::ranges::find(kLayerPlanners, name, &LayerPlannerEntry::name);
  return found == kLayerPlanners.end() ? nullptr : &*found;
}

Result<std::set<std::string, std::less<>>> parse_compat(const LayerPlannerEntry& planner, std::string_view list) {
  std::set<std::string, std::less<>> names;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view word = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    if (word == "all") {
      for (const Quirk& quirk : planner.quirks)
        if (quirk.in_all) names.emplace(quirk.name);
      continue;
    }
    if (std::ranges::find(planner.quirks, word, &Quirk::name) == planner.quirks.end()) {
      std::string known = "all";
      for (const Quirk& quirk : planner.quirks) known += text(", ", quirk.name);
      return Diagnostic{.code = Code::kUsage,
                        .origin = ModelText("--compat"),
                        .message = text("the planner ", planner.name, " has no quirk '",
                                        Terminal::encode_text(word.substr(0, 40)).str(), "'"),
                        .hint = "it knows " + known};
    }
    names.emplace(word);
  }
  return names;
}

Result<LayerPlanAnswer> plan_layers(const LayerPlannerEntry& planner, const LayerPlanRequest& request) {
  GP_CHECK(request.graph != nullptr && !request.machine.levels.empty());
  GP_TRY(LayerPlanAnswer answer, planner.plan(request));
  const Diagnostics problems = check_layer_plan(request, answer);
  if (!problems.empty()) return problems;
  return answer;
}

}  // namespace graphpipe::partitioner
