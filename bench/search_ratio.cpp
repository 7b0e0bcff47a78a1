// How much faster our search is than searches over all downsets, on the same graphs in the same run: GraphPipe's and
// auto against our own PipeDream dynamic program (one level, no memory limit) and our own Piper, over the same
// micro-batch sizes, processor seconds.
//   search_ratio [seconds]      the most that a search over downsets may take for one graph, 120 without
// ">" stands before what was not finished in this time or within 4 GB of tables.

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "partitioner/candidates.h"
#include "partitioner/cost_models/unit_request.h"
#include "partitioner/planner.h"
#include "tests/support/paper_models.h"

using namespace graphpipe;

namespace {

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Search {
  double seconds = 0;
  bool finished = true;
  std::string shown() const {
    char text[40];
    std::snprintf(text, sizeof text, "%s%.3f", finished ? "" : ">", seconds);
    return text;
  }
  std::string over(double ours) const {
    char text[40];
    std::snprintf(text, sizeof text, "%s%.0f", finished ? "" : ">", seconds / ours);
    return text;
  }
};

double ours(const char* planner, const partitioner::PlanRequest& request) {
  const double start = processor_seconds();
  const auto answer = partitioner::plan(planner, request);
  if (!answer.ok()) std::printf("%s: %s\n", planner, to_line(answer.problems().front()).c_str());
  return processor_seconds() - start;
}

Search over_downsets(const char* planner, const partitioner::PlanRequest& request, double max_seconds) {
  const ir::Cluster& cluster = *request.cluster;
  const double bandwidth = cluster.levels.back().bandwidth.count;
  Search search;
  const double start = processor_seconds();
  for (const Samples size : partitioner::micro_batch_sizes(request)) {
    const ir::PlanGraph unit = partitioner::unit_of(*request.graph, size, bandwidth);
    const partitioner::UnitPrices prices = partitioner::unit_prices(unit);
    partitioner::UnitRequest layers;
    layers.prices = &prices;
    layers.machine.levels = {{.count = static_cast<int>(cluster.devices.size()), .bandwidth = bandwidth}};
    layers.micro_batches = request.graph->batch.count / size.count;
    layers.use_fewer = true;
    layers.memory_budget = 4e9;
    layers.max_pairs = INT64_MAX / 2;
    layers.time_limit = max_seconds - (processor_seconds() - start);
    const auto answer = partitioner::search_unit(*partitioner::find_planner(planner), layers);
    search.finished = search.finished && answer.ok() && answer->complete && answer->stopped.empty();
    if (!search.finished) break;
  }
  search.seconds = processor_seconds() - start;
  return search;
}

struct Case {
  std::string name;
  ir::PlanGraph graph;
  int devices;
};

}  // namespace

int main(int argc, char** argv) {
  const double max_seconds = argc > 1 ? std::atof(argv[1]) : 120;
  const Case cases[] = {{"mmt-2x1", tests::mmt(128, 2, 1), 8},  {"mmt-2x2", tests::mmt(128, 2, 2), 8},
                        {"mmt-2x4", tests::mmt(256, 2, 4), 16}, {"mmt-2x8", tests::mmt(256, 2, 8), 16},
                        {"mmt-3x1", tests::mmt(128, 3, 1), 8},  {"mmt-3x2", tests::mmt(128, 3, 2), 8},
                        {"mmt-4x1", tests::mmt(128, 4, 1), 8},  {"mmt-4x8", tests::mmt(512, 4, 8), 32},
                        {"dlrm", tests::dlrm(1024), 16},        {"candle", tests::candle_uno(1024), 16}};
  std::printf(
      "model operators devices graphpipe_s auto_s pipedream_s piper_s pipedream/graphpipe piper/graphpipe "
      "pipedream/auto piper/auto\n");
  for (const Case& one : cases) {
    const ir::Cluster cluster = tests::summit(one.devices);
    const partitioner::PlanRequest request{.graph = &one.graph, .cluster = &cluster};
    const double graphpipe = ours("graphpipe", request), best = ours("auto", request);
    const Search pipedream = over_downsets("pipedream", request, max_seconds);
    const Search piper = over_downsets("piper", request, max_seconds);
    std::printf("%s %zu %d %.3f %.3f %s %s %s %s %s %s\n", one.name.c_str(), one.graph.nodes.size(), one.devices,
                graphpipe, best, pipedream.shown().c_str(), piper.shown().c_str(), pipedream.over(graphpipe).c_str(),
                piper.over(graphpipe).c_str(), pipedream.over(best).c_str(), piper.over(best).c_str());
    std::fflush(stdout);
  }
  return 0;
}
