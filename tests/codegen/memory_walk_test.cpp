// The memory of an item by the code of its stage: laws over random cuts, and small graphs by hand. That it is what
// programs allocate is shown where they run (tests/e2e).

#include "codegen/memory_walk.h"

#include <doctest/doctest.h>

#include "tests/support/training_graphs.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

codegen::StageMemories memories_of(const ir::Graph& graph, const ir::PlanGraph& plan, const ir::StageGraph& stages) {
  auto memories = codegen::StageMemories::of(graph, plan, stages);
  REQUIRE(memories.ok());
  return std::move(memories).value();
}

/// Of the whole graph as one stage.
ir::ItemMemory item_of(const ir::Graph& graph, int64_t samples, bool recompute = false, bool joined = false) {
  const ir::PlanGraph plan = plan_of(graph, 8);
  const auto stages = stages_of(plan, std::vector<size_t>(plan.nodes.size(), 0), 8, recompute);
  REQUIRE(stages.ok());
  return memories_of(graph, plan, *stages).item(ir::StageId(0), Samples(samples), joined);
}

/// The sum of all positions of x [B, 2, 3], which are made one axis: in another order where `transposes`.
ir::Graph summed_rows(bool transposes) {
  GraphMaker make;
  ir::ValueId x = make.input("x", {batch(), size(2), size(3)});
  if (transposes) x = make.node("Transpose", {x}, {{"perm", std::vector<int64_t>{0, 2, 1}}});
  const auto row = make.node("Reshape", {x}, {{"shape", ir::Shape{batch(), size(6)}}});
  const ir::Attributes last = {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}};
  make.output(make.node("ReduceSum", {row}, last), "y");
  return std::move(make.graph);
}

}  // namespace

TEST_CASE("a reshape counts where it copies") {
  const int64_t x = 2 * 6 * 4, y = 2 * 4;
  CHECK(item_of(summed_rows(false), 2).forward.peak == Bytes(x + y));
  CHECK(item_of(summed_rows(true), 2).forward.peak == Bytes(x + x));
  for (const bool transposes : {false, true})
    CHECK_MESSAGE(item_of(summed_rows(transposes), 2).forward.left == Bytes(0), "nobody reads on");
}

TEST_CASE("a result in the place of its operand takes no memory") {
  const auto peak = [](const std::string& second) {
    GraphMaker make;
    const auto x = make.input("x", {batch(), size(6)});
    const ir::Attributes last = {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}};
    const auto value = make.node(second, {make.node("Exp", {x})});
    make.output(make.node("ReduceSum", {make.node("Add", {value, x})}, last), "y");
    return item_of(make.graph, 2).forward.peak;
  };
  const int64_t row = 2 * 6 * 4;
  CHECK(peak("Relu") == Bytes(2 * row));  // the input, and one for all that is computed
  CHECK(peak("Log") == Bytes(3 * row));   // which makes a tensor of its own
}

TEST_CASE("a slice is a view, and a copy where it turns rows round") {
  const auto sliced = [](int64_t start, int64_t end, int64_t step) {
    GraphMaker make;
    const auto x = make.input("x", {batch(), size(6)});
    const std::vector<int64_t> axis = {1}, starts = {start}, ends = {end}, steps = {step};
    const auto part = make.node("Slice", {x}, {{"axes", axis}, {"starts", starts}, {"ends", ends}, {"steps", steps}});
    const ir::Attributes last = {{"axes", axis}, {"keepdims", int64_t{0}}};
    make.output(make.node("ReduceSum", {part}, last), "y");
    return std::move(make.graph);
  };
  const int64_t x = 2 * 6 * 4, y = 2 * 4;
  CHECK(item_of(sliced(0, 5, 1), 2).forward.peak == Bytes(x + y));
  CHECK(item_of(sliced(-1, INT64_MIN, -1), 2).forward.peak == Bytes(x + x));
}

TEST_CASE("a gradient that is repeated takes what it repeats") {
  const auto peak = [](const std::string& repeat) {
    GraphMaker make;
    const auto sums = make.input("sums", {batch(), size(2)}), x = make.input("x", {batch(), size(16), size(2)});
    const ir::Shape shape = {batch(), size(16), size(2)};
    const auto repeated =
        make.node(repeat, {sums}, {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}, {"shape", shape}});
    const auto product = make.node("Pow", {repeated, x});
    const ir::Attributes all = {{"axes", std::vector<int64_t>{1, 2}}, {"keepdims", int64_t{0}}};
    make.output(make.node("ReduceSum", {product}, all), "y");
    return item_of(make.graph, 2).forward.peak;
  };
  const int64_t sums = 2 * 2 * 4, x = 16 * sums;
  CHECK(peak("ReduceSumGrad") == Bytes(sums + 2 * x));   // the sums themselves
  CHECK(peak("ReduceMeanGrad") == Bytes(sums + 2 * x));  // as much, made of them
}

TEST_CASE("operands that kernels read in order are copied where they lie otherwise") {
  // x [B, 3, 4] as it is, and turned.
  const auto peak = [](const std::string& op, const ir::Shape& weight, bool transposes) {
    GraphMaker make;
    auto x = make.input("x", transposes ? ir::Shape{batch(), size(4), size(3)} : ir::Shape{batch(), size(3), size(4)});
    if (transposes) x = make.node("Transpose", {x}, {{"perm", std::vector<int64_t>{0, 2, 1}}});
    ir::Attributes attributes;
    if (op == "Linear") attributes.set("transB", int64_t{1});
    make.output(make.node(op, {x, make.weight("w", weight)}, attributes), "y");
    return item_of(make.graph, 2).forward.peak.count;
  };
  const int64_t x = 2 * 3 * 4 * 4;
  for (const auto& [op, weight] :
       {std::pair("Linear", ir::Shape{size(5), size(4)}), std::pair("Conv", ir::Shape{size(5), size(3), size(2)})}) {
    CAPTURE(op);
    CHECK(peak(op, weight, true) == peak(op, weight, false) + x);
  }
}

TEST_CASE("what is repeated counts whole where kernels copy it") {
  const auto peak = [](bool repeats, const ir::Shape& shape) {
    GraphMaker make;
    ir::Shape reduced = shape;
    reduced[1] = size(1);
    const auto given = make.input("given", repeats ? reduced : shape);
    const std::vector<int64_t> axes = {1};
    const auto x = repeats ? make.node("ReduceSumGrad", {given}, {{"axes", axes}, {"shape", shape}}) : given;
    make.output(make.node("Linear", {x, make.weight("w", {size(5), size(8)})}, {{"transB", int64_t{1}}}), "y");
    return item_of(make.graph, 2).forward.peak.count;
  };
  CHECK(peak(true, {batch(), size(3), size(8)}) == peak(false, {batch(), size(3), size(8)}) + 2 * 8 * 4);
  CHECK(peak(true, {batch(), size(8)}) == peak(false, {batch(), size(8)}) + 2 * 4);
}

TEST_CASE("what is repeated is sent whole") {
  GraphMaker make;
  const ir::Shape shape = {batch(), size(16)};
  const auto sums = make.input("sums", {batch(), size(1)});
  const auto repeated = make.node("ReduceSumGrad", {sums}, {{"axes", std::vector<int64_t>{1}}, {"shape", shape}});
  make.output(make.node("Exp", {repeated}), "y");
  const ir::PlanGraph plan = plan_of(make.graph, 8);
  const auto stages = stages_of(plan, {0, 1}, 8, false);
  REQUIRE(stages.ok());
  const ir::ItemMemory sender = memories_of(make.graph, plan, *stages).item(ir::StageId(0), Samples(2), false);
  CHECK(sender.forward.left == Bytes(2 * 16 * 4));
}

TEST_CASE("the gradient of a power takes tensors in between only where exponents differ") {
  const auto peak = [](const ir::Shape& exponent) {
    GraphMaker make;
    const auto gradient = make.input("gradient", {batch(), size(8)}), x = make.input("x", {batch(), size(8)});
    make.output(make.node("PowGradBase", {gradient, x, make.weight("exponent", exponent)}), "y");
    return item_of(make.graph, 2).forward.peak.count;
  };
  const int64_t x = 2 * 8 * 4;
  CHECK(peak({}) == 3 * x);
  CHECK(peak({size(1)}) == 3 * x);
  CHECK(peak({size(8)}) == 3 * x + 9 * x / 4);
}

TEST_CASE("one product: its data, its result and the gradient of its weight") {
  GraphMaker make;
  const auto x = make.input("x", {batch(), size(4)});
  make.output(make.node("MatMul", {x, make.weight("w", {size(4), size(3)})}), "y");
  const ir::Graph graph = trained(std::move(make.graph), "mse", "y");
  const ir::ItemMemory item = item_of(graph, 8);
  CHECK(item.weight_gradients == Bytes(4 * 3 * 4));
  // The backward reads x, y and the label again; the loss and its scale are two numbers.
  CHECK(item.forward.left == Bytes(8 * (4 + 3 + 3) * 4 + 2 * 4));
  CHECK(item.first_weight_gradient.peak >= item.weight_gradient.peak);
  CHECK(item.first_weight_gradient.left == item.weight_gradient.left);
}

TEST_CASE("the gradient of a table is what was looked up, until the update makes it whole") {
  for (const int64_t rows : {31, 32}) {
    CAPTURE(rows);
    GraphMaker make;
    const auto ids = make.typed_input("ids", ir::DType::kInt64, {batch()});
    const auto table = make.weight("table", {size(rows), size(3)});
    make.output(make.node("Gather", {table, ids}, {{"axis", int64_t{0}}}), "y");
    const ir::Graph graph = trained(std::move(make.graph), "mse", "y");
    const ir::ItemMemory item = item_of(graph, 8, false, true);
    const int64_t whole = rows * 3 * 4, looked_up = 8 * (3 * 4 + 8);
    const bool keeps_rows = rows >= 4 * 8;  // a fourth of the table at most
    CHECK(item.weight_gradients == Bytes(keeps_rows ? looked_up : whole));
    CHECK(item.other_rows == Bytes(keeps_rows ? whole - looked_up : 0));
    CHECK(item.first_backward.tables.size() == (keeps_rows ? 1 : 0));
  }
}

namespace {

/// Whether the events of a function come to what it takes most and to what it leaves.
bool adds_up(const ir::FunctionMemory& function, Bytes sums) {
  Bytes held, peak;
  for (const ir::MemoryEvent& event : function.events) {
    const bool is_scratch = event.storage == ir::MemoryEvent::kScratch;
    peak = std::max(peak, held + (event.taken ? event.bytes : Bytes(0)));
    if (!is_scratch) held += event.taken ? event.bytes : Bytes(0) - event.bytes;
  }
  return peak == function.peak && held == function.left + sums;
}

}  // namespace

TEST_CASE("cut anywhere, an item leaves nothing but what it hands on") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const ir::Graph graph = seed % 2 == 0 ? trained(branches(), "mse", "y") : trained(mlp(), "cross_entropy", "logits");
    const ir::PlanGraph plan = plan_of(graph, 8);
    std::vector<size_t> stage_of;
    for (size_t node = 0; node < plan.nodes.size(); ++node)
      stage_of.push_back(node * (1 + seed % 4) / plan.nodes.size());
    const auto stages = stages_of(plan, stage_of, 2, seed % 3 == 2);
    REQUIRE(stages.ok());
    const codegen::StageMemories memories = memories_of(graph, plan, *stages);
    for (const ir::StageId stage : stages->stage_ids()) {
      CAPTURE(stage);
      const ir::ItemMemory small = memories.item(stage, Samples(2), false),
                           large = memories.item(stage, Samples(4), false),
                           joined = memories.item(stage, Samples(2), true);
      for (const auto part : {&ir::ItemMemory::forward, &ir::ItemMemory::again, &ir::ItemMemory::input_gradient,
                              &ir::ItemMemory::weight_gradient, &ir::ItemMemory::first_weight_gradient}) {
        CHECK((small.*part).peak >= std::max(Bytes(0), (small.*part).left));
        CHECK(adds_up(small.*part, part == &ir::ItemMemory::first_weight_gradient ? small.weight_gradients : Bytes(0)));
      }
      CHECK(large.forward.peak >= small.forward.peak);
      CHECK(small.weight_gradients == large.weight_gradients);
      CHECK(small.first_weight_gradient.left == small.weight_gradient.left);
      CHECK_MESSAGE(small.first_weight_gradient.peak <= small.weight_gradient.peak + small.weight_gradients,
                    "the sums are all that the first makes beside");
      // The stash of a forward lies there at the start of the backward, and all that it does not hand on is gone.
      CHECK(small.forward.left + small.again.left >= Bytes(0));
      CHECK(small.input_gradient.left + small.weight_gradient.left == small.backward.left);
      CHECK(small.backward.peak ==
            std::max(small.input_gradient.peak, small.input_gradient.left + small.weight_gradient.peak));
      if (seed % 2 == 1) CHECK_MESSAGE(joined.backward.peak <= small.backward.peak, "along a chain tensors go sooner");
      CHECK(joined.backward.left == small.backward.left);
    }
  }
}

TEST_CASE("a stage that recomputes keeps its inputs alone") {
  const ir::Graph graph = trained(mlp(), "cross_entropy", "logits");
  const ir::ItemMemory kept = item_of(graph, 8), recomputed = item_of(graph, 8, true);
  CHECK(recomputed.forward.left < kept.forward.left);
  CHECK(kept.again.peak == Bytes(0));
  CHECK(recomputed.forward.left + recomputed.again.left >= kept.forward.left);
}

TEST_CASE("a workspace that no machine has is too large, and no number that has run over") {
  GraphMaker make(ir::DType::kBFloat16);
  const int64_t channels = int64_t{1} << 30, pad = int64_t{1} << 20;
  const auto x = make.input("x", {batch(), size(channels), size(1), size(1)});
  const auto weight = make.weight("w", {size(1), size(channels), size(1), size(1)});
  make.output(make.node("Conv", {x, weight}, {{"pads", std::vector<int64_t>(4, pad)}}), "y");
  CHECK(item_of(make.graph, 2).forward.peak > Bytes(int64_t{1} << 58));
}
