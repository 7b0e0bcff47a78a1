// The products that `build` measures.

#include "codegen/products.h"

#include <doctest/doctest.h>

#include "tests/support/training_graphs.h"
#include "wire/product_table.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

/// The products of a model whose output is y, in items of these numbers of samples.
std::string products_of(ir::Graph model, const std::vector<int64_t>& items) {
  const ir::Graph graph = trained(std::move(model), "mse", "y");
  const ir::PlanGraph plan = plan_of(graph, 8);
  const auto stages = stages_of(plan, std::vector<size_t>(plan.nodes.size(), 0), 8);
  REQUIRE(stages.ok());
  const auto cuts = codegen::cut_stages(graph, plan, *stages);
  REQUIRE(cuts.ok());
  ir::Program program;
  for (const int64_t samples : items)
    program.actions.push_back({.op = ir::ActionOp::kForward, .stage = 0, .range = {0, samples}});
  return codegen::write_products(graph, *cuts, {.programs = {program}}, 2).text;
}

/// A layer of 512 x 128, with its weight transposed or not.
std::string products_of_layer(bool turned, const std::vector<int64_t>& items) {
  GraphMaker make;
  const auto x = make.node("Relu", {make.input("x", {batch(), size(16), size(512)})});
  const auto weight = make.weight("w", turned ? ir::Shape{size(128), size(512)} : ir::Shape{size(512), size(128)});
  // Before it a weight, so that the gradient of its rows is asked for.
  const auto rows = make.node("Mul", {x, make.weight("scale", {size(512)})});
  make.output(make.node("Linear", {rows, weight}, {{"transB", int64_t{turned}}}), "y");
  return products_of(std::move(make.graph), items);
}

}  // namespace

TEST_CASE("the products of a layer, its gradients' and each number of samples, with operands as they lie") {
  CHECK(products_of_layer(true, {8, 2, 8}) ==
        "graphpipe-products 3\nthreads 2\nproduct 32 128 512 n n\nproduct 32 512 128 n t\n"
        "product 128 32 512 t n\nproduct 128 128 512 n n\nproduct 128 128 512 t n\nproduct 128 512 128 n t\n");
  CHECK(products_of_layer(false, {2}) ==
        "graphpipe-products 3\nthreads 2\nproduct 32 128 512 n t\nproduct 32 512 128 n n\nproduct 512 32 128 t n\n");
}

TEST_CASE("the passes of convolutions that fit Winograd's method, and of no other") {
  GraphMaker make;
  const auto x = make.node("Relu", {make.input("x", {batch(), size(16), size(24), size(20)})});
  const auto convolved = [&](ir::ValueId of, const char* name, int64_t channels, int64_t stride) {
    return make.node("Conv", {of, make.weight(name, {size(32), size(channels), size(3), size(3)})},
                     {{"strides", std::vector<int64_t>{stride, stride}}, {"pads", std::vector<int64_t>{1, 0, 1, 0}}});
  };
  make.output(convolved(convolved(x, "first", 16, 1), "second", 32, 2), "y");
  CHECK(products_of(std::move(make.graph), {2}) ==
        "graphpipe-products 3\nthreads 2\nconvolution forward 2 16 32 24 20 1 0\n"
        "convolution weight-gradient 2 16 32 24 20 1 0\n");
}

TEST_CASE("products too small to be worth it are left out") {
  CHECK(products_of_layer(true, {}) == "graphpipe-products 3\nthreads 2\n");
  CHECK_FALSE(wire::is_worth_measuring({64, 64, 64}));
}
