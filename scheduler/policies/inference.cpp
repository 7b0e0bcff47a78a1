// Forward only: the samples stream through the stages in order.

#include "scheduler/policies/in_flight_rules.h"

namespace graphpipe::scheduler {

StageGraph without_backward(StageGraph graph) {
  for (ir::Stage& stage : graph.stages) {
    stage.has_backward = false;
    stage.choice.recompute = false;
    stage.trainable_weight_bytes = stage.updated_weight_bytes = Bytes(0);
    stage.input_gradient = stage.weight_gradient = {};
  }
  for (ir::StageEdge& edge : graph.edges) {
    edge.gradient_bytes = {};
    edge.gradient_count = edge.passed_gradients = 0;
  }
  for (ir::SharedWeights& shared : graph.shared) shared.gradient_bytes = Bytes(0);
  return graph;
}

Result<Schedule> order_inference(const PolicyRequest& request) {
  const StageGraph graph = without_backward(request.graph);
  return one_forward_one_backward(graph, depth_in_flight(graph, UseK::kNo), "inference");
}

}  // namespace graphpipe::scheduler
