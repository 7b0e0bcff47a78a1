#include "codegen/function_writer.h"

#include <doctest/doctest.h>

#include "codegen/slot_layout.h"
#include "codegen/split_function.h"
#include "codegen/stage_steps.h"
#include "passes/pipeline.h"
#include "tests/support/training_graphs.h"

using namespace graphpipe;
using namespace graphpipe::tests;

TEST_CASE("a function names tensors after values and releases them after their last use") {
  GraphMaker make;
  const auto x = make.input("x", {batch(), size(4)});
  const auto hidden = make.node("Relu", {make.node("Exp", {x})});
  make.output(make.node("Add", {hidden, make.weight("w", {size(4)})}), "y");
  const codegen::FunctionText function = codegen::write_whole_function(make.graph);
  CHECK(codegen::include_lines(function.headers) + "\n" + function.definition("run") ==
        R"(#include <ATen/core/Tensor.h>
#include <ATen/ops/exp.h>

#include <utility>

#include "runtime/kernels/relu.h"
#include "runtime/program.h"

void run(const graphpipe::runtime::StageArguments& a) {
  const at::Tensor* w = a.weights;
  at::Tensor* slot = a.slot;
  [[maybe_unused]] const int64_t b = a.samples;
  const at::Tensor& v0 = slot[0];
  at::Tensor v1 = at::exp(v0);  // n0 /Exp_0: f32[b,4]
  at::Tensor v2 = graphpipe::runtime::relu_(v1);  // n1 /Relu_1: f32[b,4]
  v1.reset();
  at::Tensor v4 = v2.add_(w[0]);  // n2 /Add_2: f32[b,4]
  slot[1] = std::move(v4);
}
)");
}

TEST_CASE("a result takes the place of an operand that nothing reads afterwards and whose memory is its own") {
  GraphMaker make;
  const auto x = make.input("x", {batch(), size(4)});
  const auto in_place = [&] {
    return codegen::write_whole_function(make.graph).definition("run").find("relu_(") != std::string::npos;
  };
  SUBCASE("an input of the function is only lent") {
    make.output(make.node("Relu", {x}), "y");
    CHECK_FALSE(in_place());
  }
  SUBCASE("what another node reads later is kept") {
    const auto value = make.node("Exp", {x});
    make.output(make.node("Mul", {make.node("Relu", {value}), value}), "y");
    CHECK_FALSE(in_place());
  }
  SUBCASE("what another node has read is not") {
    const auto value = make.node("Exp", {x});
    const auto before = make.node("Tanh", {value});
    make.output(make.node("Mul", {make.node("Relu", {value}), before}), "y");
    CHECK(in_place());
  }
  SUBCASE("a view, and what has one, share their memory") {
    const auto value = make.node("Exp", {x});
    const auto view = make.node("Reshape", {value}, {{"shape", ir::Shape{batch(), size(2), size(2)}}});
    make.output(make.node("Relu", {value}), "y");
    make.output(make.node("Relu", {view}), "z");
    CHECK_FALSE(in_place());
  }
  SUBCASE("an output of the function stays as it is") {
    const auto value = make.node("Exp", {x});
    make.output(value, "value");
    make.output(make.node("Relu", {value}), "y");
    CHECK_FALSE(in_place());
  }
  SUBCASE("a part of a function follows the whole, which may store what is handed on") {
    const auto value = make.node("Exp", {x});
    const auto result = make.node("Relu", {value});
    const std::vector<codegen::Step> step = {{make.graph.value(result).producer, {}, {}}};
    codegen::FunctionOptions options;
    options.loads = {{value, {codegen::Place::Array::kHandedOn, 0}, true}};
    options.stores = {{result, {codegen::Place::Array::kSlot, 1}}};
    const IdSet<ir::NodeId> none;
    options.overwriting = &none;
    CHECK(codegen::write_function(make.graph, step, options).body.find("relu(") != std::string::npos);
    IdSet<ir::NodeId> both;
    both.insert(step.front().node);
    options.overwriting = &both;
    CHECK(codegen::write_function(make.graph, step, options).body.find("relu_(") != std::string::npos);
  }
  SUBCASE("a result of another shape needs memory of its own") {
    const auto row = make.node("Exp", {make.weight("w", {size(4)})});
    const std::string function = [&] {
      make.output(make.node("Add", {row, x}), "y");
      return codegen::write_whole_function(make.graph).definition("run");
    }();
    CHECK(function.find("add_(") == std::string::npos);
  }
}

TEST_CASE("a hostile name reaches a comment only cleaned and cut") {
  GraphMaker make;
  const auto x = make.input("x", {batch(), size(4)});
  make.output(make.node("Relu", {x}), "y");
  make.graph.node(ir::NodeId(0)).origins = {ModelText("a\n#include \"/etc/passwd\" \\\n?\?/" + std::string(5000, 'z'))};
  const std::string text = codegen::write_whole_function(make.graph).definition("run");
  CHECK(text.find("passwd\"") == std::string::npos);
  CHECK(text.find('\\') == std::string::npos);
  CHECK(text.size() < 1000);
}

TEST_CASE("parts hand on what later parts read, and each place is emptied by its last reader") {
  passes::PassContext context;
  context.loss = {.kind = "mse", .output = ModelText("y"), .label = ModelText("label")};
  const auto graph = passes::run_pipeline(branches(), context);
  REQUIRE(graph.ok());
  const ir::PlanGraph plan = plan_of(*graph, 4);
  const auto stages = stages_of(plan, std::vector<size_t>(plan.nodes.size(), 0), 4);
  const auto cuts = codegen::cut_stages(*graph, plan, *stages);
  REQUIRE(cuts.ok());
  const codegen::StageCut& cut = (*cuts)[ir::StageId(0)];
  const codegen::SlotLayout layout = codegen::lay_out_slots(*graph, cut);
  const auto param_of = ir::params_of_values(*graph);
  for (size_t max_steps : {1, 2, 3, 100}) {
    CAPTURE(max_steps);
    const std::vector<codegen::Step>& steps = cut.steps.weight_gradient;
    const auto split =
        codegen::split_function(*graph, steps, layout.weight_gradient, codegen::part_ranges(*graph, steps, max_steps));
    CHECK(split.parts.size() == (steps.size() + max_steps - 1) / max_steps);
    std::set<codegen::Place> filled;
    for (const codegen::Load& load : layout.weight_gradient.loads) filled.insert(load.place);
    for (const codegen::FunctionPart& part : split.parts) {
      CHECK(part.steps.size() <= max_steps);
      std::set<ir::ValueId> known;
      for (const codegen::Load& load : part.loads) {
        CHECK(filled.contains(load.place));
        if (load.take) filled.erase(load.place);
        known.insert(load.value);
      }
      for (const codegen::Step& step : part.steps) {
        for (ir::ValueId input : codegen::inputs_of_step(*graph, step))
          CHECK((param_of[input].valid() || known.contains(input)));
        for (ir::ValueId output : graph->node(step.node).outputs) known.insert(output);
      }
      for (const codegen::Store& store : part.stores) {
        CHECK(known.contains(store.value));
        CHECK(filled.insert(store.place).second);
      }
    }
    CHECK(filled.empty());
  }
}

TEST_CASE("a function with marks stops the time of every step") {
  GraphMaker make;
  const auto x = make.input("x", {batch(), size(4)});
  make.output(make.node("Relu", {make.node("Exp", {x})}), "y");
  const std::vector<codegen::Step> steps = {{.node = ir::NodeId(0)}, {.node = ir::NodeId(1)}};
  codegen::MarkTable marks;
  codegen::FunctionOptions options;
  options.loads = {{x, {codegen::Place::Array::kSlot, 0}, false}};
  options.stores = {{make.graph.outputs().front().value, {codegen::Place::Array::kSlot, 1}}};
  options.marks = &marks;
  const codegen::FunctionText function = codegen::write_function(make.graph, steps, options);
  const std::string body = function.definition("run");
  CHECK(function.headers.contains("runtime/profiling/marks.h"));
  CHECK(body.find("begin_marks();\n  const at::Tensor& v0 = slot[0];") != std::string::npos);
  CHECK(body.find("mark(0);\n  at::Tensor v2") != std::string::npos);
  CHECK(body.find("slot[1] = std::move(v2);\n  graphpipe::runtime::mark(1);\n}") != std::string::npos);
  REQUIRE(marks.marks().size() == 2);
  CHECK(marks.marks()[1].node == ir::NodeId(1));
  CHECK(marks.marks()[1].passes == 1);
}

// A precision adds casts, which must not change what a training draws.
TEST_CASE("what a node draws depends on the nodes before it that draw, not on others") {
  const auto keys_of = [](bool casts) {
    GraphMaker make;
    ir::ValueId value = make.input("x", {batch(), size(4)});
    for (int i = 0; i < 2; ++i) {
      if (casts) value = make.node("Exp", {value});
      value = make.node("Dropout", {value}, {{"ratio", 0.25}});
    }
    make.output(value, "y");
    const std::string body = codegen::write_whole_function(make.graph).definition("run");
    std::vector<std::string> keys;
    for (size_t at = body.find("RandomKey{"); at != std::string::npos; at = body.find("RandomKey{", at + 1))
      keys.push_back(body.substr(at, body.find('}', at) - at));
    return keys;
  };
  const std::vector<std::string> keys = keys_of(false);
  REQUIRE(keys.size() == 2);
  CHECK(keys[0] != keys[1]);
  CHECK(keys_of(true) == keys);
}
