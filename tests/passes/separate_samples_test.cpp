#include "passes/separate_samples.h"

#include <doctest/doctest.h>

#include "passes/drop_dead_nodes.h"
#include "tests/support/training_graphs.h"

using namespace graphpipe;
using namespace graphpipe::tests;
using ir::ValueId;

namespace {

ir::Shape dims(std::initializer_list<ir::Dim> list) { return ir::Shape(list); }
ir::Attributes shape(std::initializer_list<ir::Dim> list) { return {{"shape", ir::Shape(list)}}; }
ir::Attributes axes(std::vector<int64_t> list) { return {{"axes", std::move(list)}}; }

/// 0, 1, ..., one for each sample.
ValueId samples(GraphMaker& make) {
  ir::Attributes attributes = shape({batch()});
  attributes.set("to", std::string("i64"));
  return make.node("Iota", {}, std::move(attributes));
}

ValueId integer(GraphMaker& make, double value) {
  ir::Param param;
  param.name = ModelText("number");
  param.kind = ir::ParamKind::kConstant;
  param.data = ir::FilledData{value};
  return make.graph.param(make.graph.add_param(param, {.type = {ir::DType::kInt64, {}}})).value;
}

ir::Graph separated(GraphMaker& make) {
  auto result = passes::separate_samples(std::move(make.graph), {});
  for (const Diagnostic& problem : result.problems()) MESSAGE(to_line(problem));
  REQUIRE(result.ok());
  auto live = passes::drop_dead_nodes(std::move(result).value(), {});
  REQUIRE(live.ok());
  return std::move(live).value();
}

size_t mixed_values(const ir::Graph& graph) {
  size_t mixed = 0;
  for (ValueId id : graph.value_ids()) mixed += graph.value(id).batch == ir::BatchKind::kMixed;
  return mixed;
}

std::vector<std::string> ops_of(const ir::Graph& graph) {
  std::vector<std::string> names;
  for (ir::NodeId id : graph.node_ids()) names.push_back(graph.node(id).op);
  return names;
}

}  // namespace

TEST_CASE("x[arange(B), i] takes one row of each sample") {
  GraphMaker make;
  const ValueId x = make.input("x", {batch(), size(7), size(5)});
  const ValueId i = make.typed_input("i", ir::DType::kInt64, {batch()});
  const ValueId place = make.node("Unsqueeze", {samples(make)}, axes({-1}));
  const ValueId tuples = make.node("Concat", {place, make.node("Unsqueeze", {i}, axes({-1}))}, {{"axis", int64_t{-1}}});
  make.output(make.node("GatherND", {x, tuples}), "y");
  REQUIRE(mixed_values(make.graph) > 0);
  const ir::Graph graph = separated(make);
  CHECK(mixed_values(graph) == 0);
  CHECK(ops_of(graph) == std::vector<std::string>{"Unsqueeze", "GatherND"});
  CHECK(graph.node(ir::NodeId(1)).attributes.get_int("batch_dims", 0) == 1);
  CHECK(graph.value(graph.outputs()[0].value).batch == ir::BatchKind::kAxis);
}

TEST_CASE("a look-up that starts at the second sample stays one that mixes") {
  GraphMaker make;
  const ValueId x = make.input("x", {batch(), size(7)});
  const ValueId shifted = make.node("Add", {samples(make), integer(make, 1)});
  make.output(make.node("GatherND", {x, make.node("Unsqueeze", {shifted}, axes({-1}))}), "y");
  const ir::Graph graph = separated(make);
  CHECK(mixed_values(graph) > 0);
}

TEST_CASE("rows numbered through all samples: a strided view is a reshape, and an offset below the length a look-up") {
  for (const bool whole : {true, false}) {
    CAPTURE(whole);
    GraphMaker make;
    const ValueId x = make.input("x", {batch(), size(6)});
    const ValueId flat = make.node("Reshape", {x}, shape({ir::Dim::batch(6)}));
    const ValueId row = make.node("Mul", {make.node("Unsqueeze", {samples(make)}, axes({1})), integer(make, 6)});
    ValueId place;
    if (whole) {
      ir::Attributes count = shape({size(6)});
      count.set("to", std::string("i64"));
      place = make.node("Unsqueeze", {make.node("Iota", {}, count)}, axes({0}));
    } else {
      place = make.node("ArgMax", {make.input("z", {batch(), size(6)})}, {{"axis", int64_t{1}}});
    }
    make.output(make.node("Gather", {flat, make.node("Add", {place, row})}, {{"axis", int64_t{0}}}), "y");
    const ir::Graph graph = separated(make);
    CHECK(mixed_values(graph) == 0);
    const auto names = ops_of(graph);
    CHECK(names.empty() == whole);  // the view of x in its own shape is x
    if (!whole) CHECK(names.back() == "GatherND");
  }
}

TEST_CASE("an index that may reach into the next sample is not taken for one that does not") {
  GraphMaker make;
  const ValueId x = make.input("x", {batch(), size(6)});
  const ValueId flat = make.node("Reshape", {x}, shape({ir::Dim::batch(6)}));
  const ValueId row = make.node("Mul", {make.node("Unsqueeze", {samples(make)}, axes({1})), integer(make, 6)});
  const ValueId place = make.typed_input("place", ir::DType::kInt64, {batch(), size(1)});
  make.output(make.node("Gather", {flat, make.node("Add", {place, row})}, {{"axis", int64_t{0}}}), "y");
  CHECK(mixed_values(separated(make)) > 0);
}

TEST_CASE("a linear layer on [T*B, D] rows of a sequence-first model keeps the batch axis") {
  GraphMaker make;
  const ValueId x = make.input("x", {size(3), batch(), size(2), size(4)});
  const ValueId w = make.weight("w", {size(5), size(8)});
  const ValueId b = make.weight("b", {size(5)});
  const ValueId flat = make.node("Reshape", {x}, shape({ir::Dim::batch(3), size(8)}));
  REQUIRE(make.graph.value(flat).batch == ir::BatchKind::kMixed);
  const ValueId product = make.node("Gemm", {flat, w, b}, {{"transB", int64_t{1}}});
  const ValueId active = make.node("Relu", {make.node("Mul", {product, b})});
  make.output(make.node("Reshape", {active}, shape({size(3), batch(), size(5)})), "y");
  const ir::Graph graph = separated(make);
  CHECK(mixed_values(graph) == 0);
  CHECK(graph.value(graph.outputs()[0].value).batch_axis == 1);
  CHECK(ops_of(graph) == std::vector<std::string>{"Reshape", "Transpose", "MatMul", "Add", "Mul", "Relu"});
}

TEST_CASE("heads that the batch axis holds are split off for the rows") {
  GraphMaker make;
  const ValueId x = make.input("x", {size(3), ir::Dim::batch(2), size(4)});
  const ValueId flat = make.node("Reshape", {x}, shape({ir::Dim::batch(3), size(8)}));
  const ValueId y = make.node("MatMul", {flat, make.weight("w", {size(8), size(5)})});
  make.output(make.node("Reshape", {y}, shape({size(3), batch(), size(5)})), "y");
  const ir::Graph graph = separated(make);
  CHECK(mixed_values(graph) == 0);
  CHECK(graph.value(graph.node(ir::NodeId(0)).outputs[0]).type.shape == dims({size(3), batch(), size(8)}));
}

TEST_CASE("a graph in which nothing changes is returned as it was") {
  const ir::Graph before = branches();
  const auto after = passes::separate_samples(before, {});
  REQUIRE(after.ok());
  CHECK(*after == before);
}
