#include "codegen/products.h"

#include <set>

#include "ops/op_def.h"
#include "wire/product_table.h"

namespace graphpipe::codegen {
namespace {

/// For each stage, the different numbers of samples of its items.
IdMap<ir::StageId, std::set<int64_t>> item_sizes(const ir::Schedule& schedule, size_t stages) {
  IdMap<ir::StageId, std::set<int64_t>> sizes(stages);
  for (const ir::Program& program : schedule.programs)
    for (const ir::Action& action : program.actions)
      if (ir::is_compute(action.op)) sizes[ir::StageId(static_cast<size_t>(action.stage))].insert(action.range.size());
  return sizes;
}

struct MeasuredWork {
  std::set<wire::Product> products;
  std::set<wire::Convolution> convolutions;
};

void add_work(const ir::Graph& graph, const std::vector<Step>& steps, int64_t samples, MeasuredWork& work) {
  for (const Step& step : steps) {
    if (step.zero.valid() || step.only_operand.valid()) continue;
    const ir::Node& node = graph.node(step.node);
    const ops::OpDef* entry = ops::find_op(node.op);
    if (entry == nullptr || (entry->product == nullptr && entry->convolution == nullptr)) continue;
    // For 16-bit types there is only one kernel.
    if (graph.value(node.inputs.front()).type.dtype != ir::DType::kFloat32) continue;
    const ops::NodeView view(graph, node);
    if (entry->product != nullptr) {
      const wire::Product product = entry->product(view, Samples(samples));
      if (wire::is_worth_measuring(product)) work.products.insert(product);
    }
    if (entry->convolution == nullptr) continue;
    if (const auto of = entry->convolution(view, Samples(samples)); of && wire::is_worth_measuring(*of))
      work.convolutions.insert(*of);
  }
}

}  // namespace

SourceFile write_products(const ir::Graph& graph, const IdMap<ir::StageId, StageCut>& cuts,
                          const ir::Schedule& schedule, int threads) {
  const IdMap<ir::StageId, std::set<int64_t>> sizes = item_sizes(schedule, cuts.size());
  MeasuredWork work;
  for (const ir::StageId stage : ids<ir::StageId>(cuts.size())) {
    const StageSteps& steps = cuts[stage].steps;
    for (const int64_t samples : sizes[stage])
      for (const std::vector<Step>* each : {&steps.forward, &steps.input_gradient, &steps.weight_gradient})
        add_work(graph, *each, samples, work);
  }
  wire::ProductTable table{.threads = threads};
  for (const wire::Product& product : work.products) table.products.push_back({product});
  for (const wire::Convolution& of : work.convolutions) table.convolutions.push_back({of});
  return {std::string(wire::kProductsFile), wire::print_product_table(table)};
}

}  // namespace graphpipe::codegen
