#include "passes/fuse_layers.h"

#include <doctest/doctest.h>

#include "passes/drop_dead_nodes.h"
#include "tests/support/training_graphs.h"

using namespace graphpipe;
using namespace graphpipe::tests;
using ir::ValueId;

namespace {

ValueId number(GraphMaker& make, double value) {
  ir::Param param;
  param.name = ModelText("number");
  param.kind = ir::ParamKind::kConstant;
  param.data = ir::FilledData{value};
  return make.graph.param(make.graph.add_param(param, {.type = {ir::DType::kFloat32, {}}})).value;
}

ValueId mean(GraphMaker& make, ValueId x, int64_t axis = -1) {
  return make.node("ReduceMean", {x}, {{"axes", std::vector<int64_t>{axis}}, {"keepdims", int64_t{1}}});
}

std::vector<std::string> fused(GraphMaker& make, ValueId result) {
  make.output(result, "y");
  auto graph = passes::fuse_layers(std::move(make.graph), {});
  for (const Diagnostic& problem : graph.problems()) MESSAGE(to_line(problem));
  REQUIRE(graph.ok());
  auto live = passes::drop_dead_nodes(std::move(graph).value(), {});
  REQUIRE(live.ok());
  std::vector<std::string> names;
  for (ir::NodeId id : live->node_ids()) names.push_back(live->node(id).op);
  return names;
}

/// (x - mean) / sqrt(variance + eps) * scale + bias, over the axis.
ValueId layer_norm(GraphMaker& make, ValueId x, bool power, int64_t axis, ValueId scale, ValueId bias) {
  const ValueId centred = make.node("Sub", {x, mean(make, x, axis)});
  const ValueId squares = power ? make.node("Pow", {centred, number(make, 2)}) : make.node("Mul", {centred, centred});
  const ValueId deviation = make.node("Sqrt", {make.node("Add", {mean(make, squares, axis), number(make, 1e-6)})});
  const ValueId scaled = make.node("Mul", {make.node("Div", {centred, deviation}), scale});
  return make.node("Add", {scaled, bias});
}

}  // namespace

TEST_CASE("LayerNorm written as arithmetic becomes one node with its epsilon") {
  for (const bool power : {true, false}) {
    CAPTURE(power);
    GraphMaker make;
    const ValueId x = make.input("x", {batch(), size(3), size(8)});
    const ValueId scale = make.weight("scale", {size(8)}), bias = make.weight("bias", {size(8)});
    make.output(layer_norm(make, x, power, -1, scale, bias), "y");
    auto graph = passes::fuse_layers(std::move(make.graph), {});
    REQUIRE(graph.ok());
    auto live = passes::drop_dead_nodes(std::move(graph).value(), {});
    REQUIRE(live->node_count() == 1);
    const ir::Node& node = live->node(ir::NodeId(0));
    CHECK(node.op == "LayerNormalization");
    CHECK(node.attributes.get_double("epsilon", 0) == doctest::Approx(1e-6));
    CHECK(node.attributes.get_int("axis", 0) == 2);
    CHECK(live->param_count() == 2);
  }
}

TEST_CASE("what looks like LayerNorm but is none stays: another axis, a scale that samples share in, another mean") {
  {
    GraphMaker make;
    const ValueId x = make.input("x", {batch(), size(8), size(8)});
    const ValueId scale = make.weight("scale", {size(8)}), bias = make.weight("bias", {size(8)});
    CHECK(fused(make, layer_norm(make, x, true, 1, scale, bias)).size() > 1);
  }
  {
    GraphMaker make;
    const ValueId x = make.input("x", {batch(), size(8)});
    const ValueId scale = make.input("scale", {batch(), size(8)}), bias = make.weight("bias", {size(8)});
    CHECK(fused(make, layer_norm(make, x, true, -1, scale, bias)).size() > 1);
  }
  {
    GraphMaker make;
    const ValueId x = make.input("x", {batch(), size(8)}), other = make.input("other", {batch(), size(8)});
    const ValueId scale = make.weight("scale", {size(8)}), bias = make.weight("bias", {size(8)});
    const ValueId centred = make.node("Sub", {x, mean(make, other)});
    const ValueId variance = mean(make, make.node("Mul", {centred, centred}));
    const ValueId deviation = make.node("Sqrt", {make.node("Add", {variance, number(make, 1e-5)})});
    const ValueId scaled = make.node("Mul", {scale, make.node("Div", {centred, deviation})});
    CHECK(fused(make, make.node("Add", {bias, scaled})).size() > 1);
  }
}

TEST_CASE("RMSNorm is recognised with a quotient and with a reciprocal, the scale on either side") {
  for (const bool reciprocal : {true, false}) {
    CAPTURE(reciprocal);
    GraphMaker make;
    const ValueId x = make.input("x", {batch(), size(3), size(8)});
    const ValueId scale = make.weight("scale", {size(8)});
    const ValueId squares = mean(make, make.node("Pow", {x, number(make, 2)}));
    const ValueId root = make.node("Sqrt", {make.node("Add", {squares, number(make, 1e-6)})});
    const ValueId normal =
        reciprocal ? make.node("Mul", {x, make.node("Reciprocal", {root})}) : make.node("Div", {x, root});
    const auto names = fused(make, reciprocal ? make.node("Mul", {scale, normal}) : make.node("Mul", {normal, scale}));
    CHECK(names == std::vector<std::string>{"RMSNormalization"});
  }
}

TEST_CASE("a model's own RMSNormalization over several axes is no LayerNormalization of the last") {
  GraphMaker make;
  const ValueId x = make.input("x", {batch(), size(3), size(8)});
  const ValueId centred = make.node("Sub", {x, mean(make, x)});
  const ValueId scaled =
      make.node("RMSNormalization", {centred, make.weight("scale", {size(3), size(8)})}, {{"axis", int64_t{1}}});
  const auto names = fused(make, make.node("Add", {scaled, make.weight("bias", {size(8)})}));
  CHECK(names == std::vector<std::string>{"ReduceMean", "Sub", "RMSNormalization", "Add"});
}

TEST_CASE("Gelu is recognised in both forms and any order of factors") {
  for (const int order : {0, 1, 2}) {
    CAPTURE(order);
    GraphMaker make;
    const ValueId x = make.input("x", {batch(), size(8)});
    const ValueId erf = make.node("Erf", {make.node("Div", {x, number(make, 1.4142135381698608)})});
    const ValueId sum = make.node("Add", {erf, number(make, 1)});
    const ValueId half = number(make, 0.5);
    const ValueId y = order == 0   ? make.node("Mul", {make.node("Mul", {x, sum}), half})
                      : order == 1 ? make.node("Mul", {make.node("Mul", {x, half}), sum})
                                   : make.node("Mul", {half, make.node("Mul", {sum, x})});
    CHECK(fused(make, y) == std::vector<std::string>{"Gelu"});
  }
  GraphMaker make;
  const ValueId x = make.input("x", {batch(), size(8)});
  const ValueId cubic = make.node("Mul", {make.node("Pow", {x, number(make, 3)}), number(make, 0.044715)});
  const ValueId inner = make.node("Mul", {make.node("Add", {x, cubic}), number(make, 0.7978845834732056)});
  const ValueId sum = make.node("Add", {make.node("Tanh", {inner}), number(make, 1)});
  CHECK(fused(make, make.node("Mul", {make.node("Mul", {x, number(make, 0.5)}), sum})) ==
        std::vector<std::string>{"Gelu"});
}

TEST_CASE("a product of an error function with another value is no Gelu") {
  GraphMaker make;
  const ValueId x = make.input("x", {batch(), size(8)}), z = make.input("z", {batch(), size(8)});
  const ValueId erf = make.node("Erf", {make.node("Div", {x, number(make, 1.4142135381698608)})});
  const ValueId sum = make.node("Add", {erf, number(make, 1)});
  CHECK(fused(make, make.node("Mul", {make.node("Mul", {z, sum}), number(make, 0.5)})).size() > 1);
}
