#include "codegen/input_table.h"

#include <algorithm>
#include <set>

#include "codegen/id_bounds.h"
#include "ops/op_def.h"
#include "wire/data_table.h"

namespace graphpipe::codegen {
namespace {

wire::DataEntry entry_of(const ir::Graph& graph, const ir::Input& input) {
  const ir::Value& value = graph.value(input.value);
  const bool has_axis = value.batch == ir::BatchKind::kAxis;
  wire::DataEntry entry{.name = input.name.raw(),
                        .type = value.type.dtype,
                        .batch_axis = has_axis ? value.batch_axis : -1,
                        .dims = {},
                        .ids = id_bounds(graph, input.value)};
  for (const ir::Dim dim : value.type.shape) entry.dims.push_back(dim.at(Samples(1)));
  if (has_axis)
    std::rotate(entry.dims.begin(), entry.dims.begin() + entry.batch_axis, entry.dims.begin() + entry.batch_axis + 1);
  return entry;
}

bool draws_random(const ir::Graph& graph) {
  for (const ir::NodeId id : graph.node_ids())
    if (const ops::OpDef* op = ops::find_op(graph.node(id).op); op != nullptr && op->is_random) return true;
  return false;
}

// Whether a node of the stage needs several samples even in evaluation, such as a loss that compares them.
bool compares_in_evaluation(const ir::Graph& graph, const StageCut& cut) {
  return std::ranges::any_of(cut.steps.forward, [&](const Step& step) {
    const ir::Node& node = graph.node(step.node);
    const ops::OpDef* op = ops::find_op(node.op);
    return op != nullptr && op->fewest_samples != nullptr && op->in_evaluation == nullptr &&
           op->fewest_samples(ops::NodeView(graph, node)) > 1;
  });
}

// Whether some optimizer step applies the gradients of only a part of the batch.
bool steps_within_the_batch(const ir::StageGraph& stages, const ir::Schedule& schedule) {
  const wire::SampleRange batch{0, stages.batch.count / stages.batches};
  for (const ir::Program& program : schedule.programs)
    for (const wire::ActionRow& row : program.actions)
      if (row.op == wire::ActionOp::kStep && row.range != batch) return true;
  return false;
}

// Whether replicas of the stage divide float32 main weights of 16-bit parameters.
bool divides_main_weights(const ir::Graph& graph, const StageCut& cut, const ir::Stage& stage) {
  return stage.choice.divides_optimizer_state() && std::ranges::any_of(cut.params, [&](ir::ParamId id) {
           const ir::DType dtype = graph.value(graph.param(id).value).type.dtype;
           return graph.param(id).trainable && (dtype == ir::DType::kFloat16 || dtype == ir::DType::kBFloat16);
         });
}

}  // namespace

bool has_gradients_in_fp16(const ir::Graph& graph) {
  for (const ir::NodeId id : graph.node_ids())
    if (const ir::Node& node = graph.node(id); node.phase != ir::Phase::kForward)
      for (const ir::ValueId output : node.outputs)
        if (graph.value(output).type.dtype == ir::DType::kFloat16) return true;
  return false;
}

SourceFile write_input_table(const ir::Graph& graph, const IdMap<ir::StageId, StageCut>& cuts,
                             const ir::StageGraph& stages, const ir::Schedule& schedule) {
  std::set<size_t> read;
  for (const StageCut& cut : cuts) read.insert(cut.data.begin(), cut.data.end());
  wire::DataTable table{.batch = stages.batch.count / stages.batches,
                        .draws_random = draws_random(graph),
                        .scales_loss = has_gradients_in_fp16(graph),
                        .whole_steps = steps_within_the_batch(stages, schedule),
                        .together = {},
                        .tied_names = {},
                        .entries = {}};
  for (const ir::StageId stage : stages.stage_ids()) {
    const ir::Stage& of_plan = stages.stages[stage];
    const int64_t size = of_plan.choice.micro_batch.count;
    table.divides_main_weights |= divides_main_weights(graph, cuts[stage], of_plan);
    if (of_plan.fewest_samples > 1)
      table.together.push_back({of_plan.fewest_samples, size, compares_in_evaluation(graph, cuts[stage])});
    // All replicas that exchange sums take part: a micro-batch that ends early must reach the samples of the last one.
    if (const int64_t replicas = std::ssize(of_plan.choice.devices); of_plan.exchanges_sums)
      table.together.push_back({(replicas - 1) * size / replicas + 1, size, false});
  }
  for (const ir::ParamId id : graph.param_ids())
    for (const ModelText& alias : graph.param(id).aliases) table.tied_names.push_back(alias.raw());
  for (const size_t input : read) table.entries.push_back(entry_of(graph, graph.inputs()[input]));
  return {std::string(wire::kDataTableFile), wire::print_data_table(table)};
}

}  // namespace graphpipe::codegen
