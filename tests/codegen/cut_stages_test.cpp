#include "codegen/cut_stages.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

#include "codegen/lifetimes.h"
#include "codegen/slot_layout.h"
#include "codegen/stage_steps.h"
#include "passes/pipeline.h"
#include "tests/support/training_graphs.h"

using namespace graphpipe;
using namespace graphpipe::tests;
using codegen::Place;
using codegen::StageCut;
using codegen::Step;

namespace {

struct Cut {
  ir::Graph graph;
  ir::PlanGraph plan;
  ir::StageGraph stages;
  IdMap<ir::StageId, StageCut> cuts;
};

/// Cuts in the order of node ids, so that the stages are convex.
Cut random_cut(ir::Graph graph, uint64_t seed, size_t count, bool recompute, bool chain) {
  std::mt19937_64 random(seed);
  Cut cut;
  cut.graph = std::move(graph);
  cut.plan = plan_of(cut.graph, 8);
  if (chain) cut.plan.execution = ir::Execution::kChain;
  count = std::min(count, cut.plan.nodes.size());
  std::set<size_t> starts = {0};
  while (starts.size() < count) starts.insert(random() % cut.plan.nodes.size());
  std::vector<size_t> stage_of;
  for (size_t node = 0; node < cut.plan.nodes.size(); ++node)
    stage_of.push_back(static_cast<size_t>(std::distance(starts.begin(), starts.upper_bound(node))) - 1);
  auto stages = stages_of(cut.plan, stage_of, 2, recompute);
  REQUIRE(stages.ok());
  cut.stages = std::move(stages).value();
  auto cuts = codegen::cut_stages(cut.graph, cut.plan, cut.stages);
  for (const Diagnostic& problem : cuts.problems()) MESSAGE(to_line(problem));
  REQUIRE(cuts.ok());
  cut.cuts = std::move(cuts).value();
  return cut;
}

bool has_samples(const ir::Graph& graph, ir::NodeId id) {
  return std::ranges::any_of(graph.node(id).outputs,
                             [&](ir::ValueId v) { return graph.value(v).batch != ir::BatchKind::kNone; });
}

void check_each_node_once(const Cut& cut) {
  std::vector<int> seen(cut.graph.node_count(), 0);
  for (const StageCut& stage : cut.cuts)
    for (const auto* steps : {&stage.steps.forward, &stage.steps.input_gradient, &stage.steps.weight_gradient}) {
      std::set<ir::NodeId> here;
      for (const Step& step : *steps)
        if (!step.zero.valid()) CHECK(here.insert(step.node).second);
      for (ir::NodeId id : here) ++seen[id.index()];
    }
  for (ir::NodeId id : cut.graph.node_ids()) {
    CAPTURE(id);
    const ir::Node& node = cut.graph.node(id);
    const ir::NodeId forward = node.serves.valid() ? node.serves : id;
    if (has_samples(cut.graph, forward))
      CHECK_MESSAGE(seen[id.index()] == 1, "a node with samples runs in exactly one stage");
    else CHECK_MESSAGE(seen[id.index()] >= 1, "what is needed runs somewhere");
  }
}

/// Runs the steps on paper: everything that a function reads is loaded, computed before, or a parameter.
void check_everything_is_there(const Cut& cut) {
  const auto param_of = ir::params_of_values(cut.graph);
  for (ir::StageId id : cut.stages.stage_ids()) {
    CAPTURE(id);
    const StageCut& stage = cut.cuts[id];
    const codegen::SlotLayout layout = codegen::lay_out_slots(cut.graph, stage);
    std::set<Place> filled;
    for (int slot : layout.recompute_inputs) filled.insert({Place::Array::kSlot, static_cast<size_t>(slot)});
    const std::vector<Step>* phases[] = {&stage.steps.forward, &stage.steps.input_gradient,
                                         &stage.steps.weight_gradient};
    const codegen::FunctionPlaces* places[] = {&layout.forward, &layout.input_gradient, &layout.weight_gradient};
    for (size_t phase = 0; phase < 3; ++phase) {
      if (phase == 1)
        for (size_t i = 0; i < layout.slots.size(); ++i)
          if (layout.slots[i].use == codegen::SlotUse::kReceivedGradient) filled.insert({Place::Array::kSlot, i});
      std::set<ir::ValueId> known;
      for (const codegen::Load& load : places[phase]->loads) {
        CHECK_MESSAGE(filled.contains(load.place), "a slot is filled before it is read");
        if (load.take) filled.erase(load.place);
        known.insert(load.value);
      }
      for (const Step& step : *phases[phase]) {
        for (ir::ValueId input : codegen::inputs_of_step(cut.graph, step)) {
          const bool is_param = param_of[input].valid();
          CHECK((is_param || known.contains(input)));
          if (is_param) CHECK(std::ranges::binary_search(stage.params, param_of[input]));
        }
        for (ir::ValueId output : codegen::outputs_of_step(cut.graph, step))
          CHECK_MESSAGE(known.insert(output).second, "a value is made once");
      }
      for (const codegen::Store& store : places[phase]->stores) {
        CHECK(known.contains(store.value));
        CHECK_MESSAGE(filled.insert(store.place).second, "no slot is written twice");
      }
      for (const Place& place : places[phase]->clears) CHECK(filled.erase(place) == 1);
    }
    // What is left belongs to others.
    for (size_t i = 0; i < layout.slots.size(); ++i) {
      const auto use = layout.slots[i].use;
      const bool is_result = use == codegen::SlotUse::kSentValue || use == codegen::SlotUse::kSentGradient ||
                             use == codegen::SlotUse::kLoss || use == codegen::SlotUse::kOutput;
      const bool has_backward = !stage.steps.input_gradient.empty() || !stage.steps.weight_gradient.empty() ||
                                !codegen::passed_gradients(stage).empty();
      if (has_backward || is_result) CHECK(filled.contains({Place::Array::kSlot, i}) == is_result);
    }
  }
}

void check_gradients_cross(const Cut& cut) {
  for (ir::EdgeId id : cut.stages.edge_ids()) {
    const ir::StageEdge& edge = cut.stages.edges[id];
    const auto boundary_of = [&](ir::StageId stage) {
      return *std::ranges::find(cut.cuts[stage].boundaries, id, &codegen::StageBoundary::edge);
    };
    const codegen::StageBoundary from = boundary_of(edge.from), to = boundary_of(edge.to);
    CHECK((!from.is_input && to.is_input));
    CHECK(from.gradients == to.gradients);
    CHECK(std::ranges::adjacent_find(from.gradients) == from.gradients.end());
    const ir::ValueId value = cut.plan.values[edge.value].source;
    for (ir::ValueId gradient : from.gradients) CHECK(cut.graph.value(gradient).type == cut.graph.value(value).type);
  }
}

void check_shares(const Cut& cut) {
  std::set<ir::ValueId> found;
  for (const StageCut& stage : cut.cuts)
    for (const ir::GradientShare& share : stage.steps.shares) {
      found.insert(share.value);
      CHECK(std::ranges::binary_search(stage.params, share.param));
    }
  CHECK(found.size() == cut.graph.gradient_shares().size());
}

}  // namespace

TEST_CASE("cut anywhere, every node runs once, finds what it reads, and every share is computed") {
  size_t passed = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    const bool recompute = seed % 3 == 2, chain = seed >= 60;
    const Cut cut = seed % 2 == 0
                        ? random_cut(trained(branches(), "mse", "y"), seed, 1 + seed % 5, recompute, chain)
                        : random_cut(trained(mlp(ir::DType::kFloat32, seed % 4 == 1), "cross_entropy", "logits"), seed,
                                     1 + seed % 4, recompute, chain);
    check_each_node_once(cut);
    check_everything_is_there(cut);
    check_gradients_cross(cut);
    check_shares(cut);
    for (const StageCut& stage : cut.cuts) passed += codegen::passed_gradients(stage).size();
  }
  CHECK(passed > 10);
}

TEST_CASE("the gradient of a product of weights is made by the stages that use it") {
  size_t cuts = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const Cut cut = random_cut(trained(product_of_weights(), "mse", "y"), seed, 2 + seed % 3, seed % 3 == 2, false);
    check_each_node_once(cut);
    check_everything_is_there(cut);
    check_shares(cut);
    for (const StageCut& stage : cut.cuts) {
      for (const ir::GradientShare& share : stage.steps.shares) {
        // A parameter has its gradient where the forward reads it.
        const auto reads_it = [&](const Step& step) {
          const std::vector<ir::ValueId> inputs = codegen::inputs_of_step(cut.graph, step);
          return std::ranges::find(inputs, cut.graph.param(share.param).value) != inputs.end();
        };
        CHECK(std::ranges::any_of(stage.steps.forward, reads_it));
      }
      for (const std::vector<Step>* steps : {&stage.steps.input_gradient, &stage.steps.weight_gradient})
        CHECK(std::ranges::none_of(*steps, [](const Step& step) { return step.zero.valid(); }));
    }
    cuts += cut.stages.stages.size() > 2;
  }
  CHECK(cuts > 5);
}

TEST_CASE("statistics of weights are not updated wherever these are read") {
  const auto normalised = [](int64_t training) {
    GraphMaker make;
    const auto x = make.input("x", {batch(), size(3)});
    std::vector<ir::ValueId> inputs = {make.weight("table", {size(2), size(3)})};
    for (const char* name : {"scale", "bias", "mean", "variance"}) inputs.push_back(make.weight(name, {size(3)}));
    const auto rows = make.node("BatchNormalization", inputs, {{"training_mode", training}});
    make.output(make.node("MatMul", {x, make.node("Transpose", {rows}, {{"perm", std::vector<int64_t>{1, 0}}})}), "y");
    const ir::Graph graph = std::move(make.graph);
    const ir::PlanGraph plan = plan_of(graph, 8);
    const auto stages = stages_of(plan, std::vector<size_t>(plan.nodes.size(), 0), 2);
    REQUIRE(stages.ok());
    const auto cuts = codegen::cut_stages(graph, plan, *stages);
    return cuts.ok() ? std::optional<Code>() : cuts.problems().front().code;
  };
  CHECK(normalised(0) == std::nullopt);
  CHECK(normalised(1) == Code::kUnsupportedOp);
}

TEST_CASE("frozen stages get no gradient transfer") {
  const Cut cut = [] {
    Cut made;
    made.graph = trained(mlp(ir::DType::kFloat32, false), "cross_entropy", "logits");
    made.plan = plan_of(made.graph, 8);
    std::vector<size_t> stage_of(made.plan.nodes.size(), 1);
    stage_of[0] = stage_of[1] = 0;  // Linear, Relu
    made.stages = *stages_of(made.plan, stage_of, 2);
    made.cuts = *codegen::cut_stages(made.graph, made.plan, made.stages);
    return made;
  }();
  REQUIRE(cut.stages.edges.size() == 1);
  CHECK(cut.cuts[ir::StageId(0)].boundaries.front().gradients.empty());
  CHECK(cut.cuts[ir::StageId(0)].steps.input_gradient.empty());
  CHECK(cut.cuts[ir::StageId(0)].steps.weight_gradient.empty());
  const codegen::SlotLayout layout = codegen::lay_out_slots(cut.graph, cut.cuts[ir::StageId(0)]);
  CHECK_MESSAGE(
      std::ranges::none_of(layout.slots, [](const codegen::Slot& s) { return s.use == codegen::SlotUse::kSaved; }),
      "a frozen stage saves nothing");
}

TEST_CASE("a backward may overwrite what its stage has saved for itself alone; outputs that are kept are copies") {
  const ir::Graph graph = trained(mlp(ir::DType::kFloat32, false), "cross_entropy", "logits");
  const ir::PlanGraph plan = plan_of(graph, 8);
  const auto layout_of_last = [&](size_t first_stages_nodes) {
    std::vector<size_t> stage_of(plan.nodes.size(), first_stages_nodes > 0 ? 1 : 0);
    std::fill_n(stage_of.begin(), first_stages_nodes, 0);
    const auto stages = *stages_of(plan, stage_of, 2);
    const auto cuts = *codegen::cut_stages(graph, plan, stages);
    return std::pair(cuts[ir::StageId(cuts.size() - 1)], codegen::lay_out_slots(graph, cuts[ir::StageId(0)]));
  };
  const ir::ValueId logits = graph.outputs().front().value;
  {
    const auto [cut, layout] = layout_of_last(0);
    const codegen::FunctionOptions options{.loads = layout.input_gradient.loads,
                                           .stores = layout.input_gradient.stores};
    const IdSet<ir::NodeId> overwriting = codegen::overwriting_nodes(graph, cut.steps.input_gradient, options);
    const bool takes_place = std::ranges::any_of(cut.steps.input_gradient, [&](const Step& step) {
      return graph.node(step.node).op == "CrossEntropyLossSumGrad" && overwriting.contains(step.node);
    });
    CHECK(takes_place);
    const auto output = std::ranges::find(layout.forward.stores, "a.keeps_outputs", &codegen::Store::condition);
    REQUIRE(output != layout.forward.stores.end());
    CHECK(output->value == logits);
    CHECK(output->copies);
    CHECK(std::ranges::none_of(layout.evaluation.stores, &codegen::Store::copies));
  }
  // Of the first of two stages the result is on its way to the second.
  const auto [second, first] = layout_of_last(2);
  for (const codegen::FunctionPlaces* places : {&first.input_gradient, &first.weight_gradient})
    for (const codegen::Load& load : places->loads)
      CHECK(load.is_own == (load.take && first.slots[load.place.index].use == codegen::SlotUse::kSaved &&
                            load.value != second.boundaries.front().value));
}

TEST_CASE("two names of one tensor are both saved, and neither is overwritten") {
  GraphMaker make(ir::DType::kFloat32);
  const auto x = make.input("x", {batch(), size(4)});
  const auto operand = make.node("Exp", {x});
  const auto sum = make.node("Add", {operand, make.node("Tanh", {x})});  // whose other operand is of another stage
  make.node("Mul", {operand, sum});
  const auto node_of = [&](ir::ValueId value) { return make.graph.value(value).producer; };
  const auto loads_own = [&](ir::ValueId only_operand) {
    StageCut cut{.steps = {.weight_gradient = {{.node = ir::NodeId(3)}}}, .data = {0}};
    cut.steps.input_gradient = {{.node = node_of(operand)}};
    if (!only_operand.valid()) cut.steps.input_gradient.push_back({.node = ir::NodeId(1)});
    cut.steps.input_gradient.push_back({.node = node_of(sum), .only_operand = only_operand});
    const codegen::SlotLayout layout = codegen::lay_out_slots(make.graph, cut);
    REQUIRE(layout.weight_gradient.loads.size() == 2);
    CHECK(std::ranges::all_of(layout.weight_gradient.loads, &codegen::Load::take));
    return std::ranges::count_if(layout.weight_gradient.loads, &codegen::Load::is_own);
  };
  CHECK(loads_own(operand) == 0);
  CHECK(loads_own({}) == 2);
}

TEST_CASE("a value with readers in two other stages is sent to both, and its gradients come back in a fixed order") {
  // h = MatMul is read by Tanh, Sigmoid and the residual Add; put each into a stage of its own.
  Cut cut;
  cut.graph = trained(branches(), "mse", "y");
  cut.plan = plan_of(cut.graph, 8);
  std::vector<size_t> stage_of;
  size_t last = 0;
  for (const ir::PlanNode& node : cut.plan.nodes) {
    const std::string& op = cut.graph.node(node.source).op;
    if (op == "Tanh") last = 1;
    if (op == "Sigmoid") last = 2;
    if (op == "Add") last = 3;
    stage_of.push_back(last);
  }
  cut.stages = *stages_of(cut.plan, stage_of, 2);
  cut.cuts = *codegen::cut_stages(cut.graph, cut.plan, cut.stages);
  size_t copies = 0;
  for (const codegen::StageBoundary& boundary : cut.cuts[ir::StageId(0)].boundaries) {
    copies += !boundary.is_input;
    CHECK(boundary.gradients.size() == 1);
  }
  CHECK(copies == 3);
  size_t sums = 0;
  for (const Step& step : cut.cuts[ir::StageId(0)].steps.input_gradient)
    sums += cut.graph.node(step.node).sums_gradient_of.valid();
  CHECK_MESSAGE(sums == 2, "all three contributions are added where the value was made");
}

TEST_CASE(
    "a weight that is split and read piecewise in two stages gets a share from each, with zeros for the other piece") {
  Cut cut;
  GraphMaker make(ir::DType::kFloat32);
  const auto x = make.input("x", {batch(), size(4)});
  const auto packed = make.weight("packed", {size(4), size(8)});
  const auto first = make.node("Split", {packed}, {{"axis", int64_t{1}}, {"sizes", std::vector<int64_t>{4, 4}}});
  const auto second = make.graph.node(make.graph.value(first).producer).outputs.at(1);
  const auto hidden = make.node("Tanh", {make.node("MatMul", {x, first})});
  make.output(make.node("MatMul", {hidden, second}), "y");
  cut.graph = trained(std::move(make.graph), "mse", "y");
  cut.plan = plan_of(cut.graph, 8);
  std::vector<size_t> stage_of(cut.plan.nodes.size(), 1);
  stage_of[0] = stage_of[1] = 0;  // MatMul, Tanh
  cut.stages = *stages_of(cut.plan, stage_of, 2);
  auto cuts = codegen::cut_stages(cut.graph, cut.plan, cut.stages);
  REQUIRE(cuts.ok());
  cut.cuts = std::move(cuts).value();
  for (const ir::StageId stage : cut.stages.stage_ids()) {
    CAPTURE(stage);
    CHECK(cut.cuts[stage].steps.shares.size() == 1);
    CHECK(std::ranges::count_if(cut.cuts[stage].steps.weight_gradient, [](const Step& s) { return s.zero.valid(); }) ==
          1);
  }
  check_each_node_once(cut);
  check_everything_is_there(cut);
}
