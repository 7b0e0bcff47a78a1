// Search time and plans of the planners on the models of GraphPipe's evaluation, at 4 to 32 devices:
//   search_time [planner] [model]
// One line per case: planner, model, nodes, devices, seconds of search, depth, stages, micro-batch, step, objective
// over its bound, and the step of the best sequential plan over this one.

#include <cstdio>
#include <cstring>

#include "cost/iteration_time.h"
#include "partitioner/planner.h"
#include "tests/support/paper_models.h"

using namespace graphpipe;

namespace {

size_t depth_of(const ir::PlanGraph& graph, ir::Assignment assignment) {
  const auto stages = build_stage_graph(graph, assignment);
  std::vector<size_t> depth(stages->stages.size(), 1);
  for (const ir::StageEdge& edge : stages->edges)
    depth[edge.to.index()] = std::max(depth[edge.to.index()], depth[edge.from.index()] + 1);
  return *std::max_element(depth.begin(), depth.end());
}

/// The step of the same plan executed as a chain, as planners that know only a chain of stages run it.
double step_as_chain(ir::PlanGraph graph, const ir::Cluster& cluster, ir::Assignment assignment) {
  graph.execution = ir::Execution::kChain;
  const auto stages = build_stage_graph(graph, assignment);
  return cost::iteration_time(*stages, cluster).total();
}

}  // namespace

int main(int argc, char** argv) {
  const char* only_planner = argc > 1 ? argv[1] : "";
  const char* only_model = argc > 2 ? argv[2] : "";
  std::printf("planner model nodes devices search_s depth stages micro_batch step_s objective/bound chain/this\n");
  for (const char* model : {"mmt", "dlrm", "candle"}) {
    if (*only_model != 0 && std::strcmp(only_model, model) != 0) continue;
    for (int devices : {4, 8, 16, 32}) {
      const int64_t batch = std::strcmp(model, "mmt") == 0 ? 16 * devices : 128 * devices;
      const ir::PlanGraph graph = std::strcmp(model, "mmt") == 0    ? tests::mmt(batch)
                                  : std::strcmp(model, "dlrm") == 0 ? tests::dlrm(batch)
                                                                    : tests::candle_uno(batch);
      const ir::Cluster cluster = tests::summit(devices);
      double as_chain = 0;
      for (const char* planner : {"sequential", "graphpipe", "auto"}) {
        if (*only_planner != 0 && std::strcmp(only_planner, planner) != 0) continue;
        const auto answer = partitioner::plan(planner, {.graph = &graph, .cluster = &cluster});
        if (!answer.ok()) {
          std::printf("%s %s %zu %d: %s\n", planner, model, graph.nodes.size(), devices,
                      to_line(answer.problems().front()).c_str());
          continue;
        }
        const partitioner::PlanCandidate& best = answer->candidates.front();
        if (std::strcmp(planner, "sequential") == 0) {
          as_chain = std::numeric_limits<double>::infinity();
          for (const auto& candidate : answer->candidates)
            as_chain = std::min(as_chain, step_as_chain(graph, cluster, candidate.assignment));
        }
        std::printf("%s %s %zu %d %.3f %zu %zu %lld %.6f %.3f %.3f\n", planner, model, graph.nodes.size(), devices,
                    answer->search_seconds, depth_of(graph, best.assignment), best.assignment.choice.size(),
                    static_cast<long long>(best.assignment.choice[ir::StageId(0u)].micro_batch.count),
                    best.step_seconds, best.objective / answer->bound, as_chain / best.step_seconds);
        std::fflush(stdout);
      }
    }
  }
  return 0;
}
