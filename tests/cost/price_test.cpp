#include "cost/price.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "cost/signature.h"
#include "ir/graph_text.h"
#include "ir/stage_graph.h"
#include "passes/pipeline.h"
#include "wire/depthwise.h"
#include "wire/function_flops.h"

using namespace graphpipe;
using namespace graphpipe::cost;
using ir::PlanNodeId;
using ir::PlanValueId;

namespace {

/// A two-layer classifier; the second weight is reached through a Transpose.
constexpr const char* kModel = R"(graphpipe.graph/1
i0  %0 = data "x" : f32[B,8]
p0  %1 = weight trainable "w1" filled(0) : f32[8,16]
p1  %2 = weight trainable "w2" filled(0) : f32[4,16]
n0  %3 = MatMul(%0, %1) : f32[B,16] from "first"
n1  %4 = Relu(%3) : f32[B,16] from "relu"
n2  %5 = Transpose(%2) {perm=[1,0]} : f32[16,4] from "transpose"
n3  %6 = MatMul(%4, %5) : f32[B,4] from "second"
out model "logits" %6
)";

ir::Graph trained(const char* model) {
  std::string source = model;
  auto parsed = ir::parse_graph(source);
  if (!parsed.ok()) MESSAGE(to_line(parsed.problems().front()));
  REQUIRE(parsed.ok());
  passes::PassContext context;
  context.loss = {.kind = "cross_entropy", .output = ModelText("logits"), .label = ModelText("label")};
  auto graph = passes::run_pipeline(*parsed, context);
  if (!graph.ok()) MESSAGE(to_line(graph.problems().front()));
  REQUIRE(graph.ok());
  return *graph;
}

PlanNodeId node_named(const ir::PlanGraph& graph, std::string_view name) {
  for (PlanNodeId id : graph.node_ids())
    if (graph.nodes[id].label.raw() == name) return id;
  FAIL("no node " << name);
  return {};
}

}  // namespace

TEST_CASE("a model is priced: one plan node per node that depends on samples, with its backward and its weights") {
  const ir::Graph graph = trained(kModel);
  const auto plan = price(graph, ir::equal_devices(2), {.batch = Samples(8), .optimizer_state_per_weight_byte = 1});
  REQUIRE(plan.ok());
  CHECK(verify_plan_graph(*plan).ok());
  const ir::PlanNode& first = plan->nodes[node_named(*plan, "first")];
  const ir::PlanNode& second = plan->nodes[node_named(*plan, "second")];
  for (const ir::PlanNode& node : plan->nodes) CHECK(node.label.raw() != "transpose");
  REQUIRE(first.weights.size() == 1);
  REQUIRE(second.weights.size() == 1);
  CHECK(plan->weight_groups[second.weights.front()].bytes == Bytes(4 * 16 * 4));
  CHECK(first.has_backward);
  CHECK(first.input_gradient.is_zero());  // nothing upstream trains
  CHECK_FALSE(first.weight_gradient.is_zero());
  CHECK_FALSE(second.input_gradient.is_zero());
  CHECK(first.forward.at(8.0) > first.forward.at(1.0));
  CHECK(first.forward.at(8.0) / 8 < first.forward.at(1.0));  // larger items are cheaper per sample
}

TEST_CASE("weights of a model that has more of them than caches hold move at a rate of their own") {
  constexpr const char* kWide = R"(graphpipe.graph/1
i0  %0 = data "x" : f32[B,8]
p0  %1 = weight trainable "w1" filled(0) : f32[8,500000]
p1  %2 = weight trainable "w2" filled(0) : f32[500000,4]
n0  %3 = MatMul(%0, %1) : f32[B,500000] from "first"
n1  %4 = MatMul(%3, %2) : f32[B,4] from "second"
out model "logits" %4
)";
  ir::Cluster same = ir::equal_devices(2), slower = same;
  for (ir::Cluster* cluster : {&same, &slower})
    for (ir::Device& device : cluster->devices) device.compute = FlopsPerSecond(1e18);  // traffic decides
  for (ir::Device& device : slower.devices) device.weight_bandwidth.count = device.memory_bandwidth.count / 4;
  for (const char* model : {kModel, kWide}) {
    const ir::Graph graph = trained(model);
    const auto plain = price(graph, same, {.batch = Samples(8)}),
               streamed = price(graph, slower, {.batch = Samples(8)});
    REQUIRE(plain.ok());
    REQUIRE(streamed.ok());
    const double weight_bytes = 4 * 8 * 500000,
                 more = 3 * weight_bytes / same.devices[ir::DeviceId(0u)].memory_bandwidth.count;
    const auto difference = [&](const ir::SampleFunction ir::PassSeconds::*pass) {
      const PlanNodeId first = node_named(*plain, "first");
      return (streamed->nodes[first].*pass).at(8.0) - (plain->nodes[first].*pass).at(8.0);
    };
    // The gradient of the weight is a tensor of its size.
    for (const auto pass : {&ir::PassSeconds::forward, &ir::PassSeconds::weight_gradient})
      CHECK(difference(pass) == doctest::Approx(model == kWide ? more : 0));
  }
}

TEST_CASE("arithmetic hides traffic, but not that of weights with a bandwidth of their own") {
  constexpr const char* kWide = R"(graphpipe.graph/1
i0  %0 = data "x" : f32[B,2048]
p0  %1 = weight trainable "w" filled(0) : f32[2048,4096]
n0  %2 = MatMul(%0, %1) : f32[B,4096] from "product"
out model "logits" %2
)";
  const ir::Graph graph = trained(kWide);
  ir::Cluster hiding = ir::equal_devices(2), streaming = hiding;
  for (ir::Cluster* cluster : {&hiding, &streaming})
    for (ir::Device& device : cluster->devices) device.compute = FlopsPerSecond(1e9);  // arithmetic decides
  for (ir::Device& device : streaming.devices) device.weight_bandwidth = BytesPerSecond(8e9);
  const auto forward = [&](const ir::Cluster& cluster, double samples) {
    const auto plan = price(graph, cluster, {.batch = Samples(8)});
    REQUIRE(plan.ok());
    return plan->nodes[node_named(*plan, "product")].forward.at(samples);
  };
  constexpr double kElements = 2048 * 4096, kOverhead = 1e-6;
  for (const double samples : {1.0, 8.0}) {
    const double arithmetic = 2 * samples * kElements / 1e9;
    CHECK(forward(hiding, samples) == doctest::Approx(kOverhead + arithmetic));
    CHECK(forward(streaming, samples) == doctest::Approx(kOverhead + arithmetic + 4 * kElements / 8e9));
  }
}

TEST_CASE("functions and depthwise convolutions have rates of their own, the latter beside what they move") {
  constexpr const char* kNet = R"(graphpipe.graph/1
i0  %0 = data "x" : f32[B,8,6,6]
p0  %1 = weight trainable "w" filled(0) : f32[8,1,3,3]
n0  %2 = Conv(%0, %1) {group = 8, pads = [1,1,1,1]} : f32[B,8,6,6] from "depthwise"
n1  %3 = Softmax(%2) {axis = -1} : f32[B,8,6,6] from "softmax"
out model "logits" %3
)";
  const ir::Graph graph = trained(kNet);
  // Slow, as Approx takes numbers for equal that differ by 1e-5.
  ir::Cluster known = ir::equal_devices(2);
  for (ir::Device& device : known.devices) {
    device.compute = FlopsPerSecond(1e15), device.memory_bandwidth = BytesPerSecond(1e6);
    device.depthwise = FlopsPerSecond(4e5), device.functions = FlopsPerSecond(2e5);
  }
  // The slowest of all devices counts.
  known.devices[ir::DeviceId(0u)].functions = FlopsPerSecond(1e5);
  const auto forward = [&](const ir::Cluster& cluster, const char* node) {
    const auto plan = price(graph, cluster, {.batch = Samples(4)});
    REQUIRE(plan.ok());
    return plan->nodes[node_named(*plan, node)].forward.at(4.0);
  };
  constexpr double kElements = 4 * 8 * 36, kOverhead = 1e-6, kWeights = 8 * 9;
  const double depthwise = 2 * 9 * kElements + wire::kFlopsOfDepthwisePlane * 4 * 8;
  CHECK(forward(known, "depthwise") ==
        doctest::Approx(kOverhead + depthwise / 4e5 + 4 * (2 * kElements + kWeights) / 1e6));
  CHECK(forward(known, "softmax") == doctest::Approx(kOverhead + wire::kSoftmaxFlops * kElements / 1e5));
  // Without these rates all is a roofline of products and traffic, of which here the arithmetic decides.
  ir::Cluster unknown = known;
  for (ir::Device& device : unknown.devices) {
    device.depthwise.count = device.functions.count = 0;
    device.compute = FlopsPerSecond(1e6);
  }
  CHECK(forward(unknown, "depthwise") == doctest::Approx(kOverhead + depthwise / 1e6));
  CHECK(forward(unknown, "softmax") == doctest::Approx(kOverhead + wire::kSoftmaxFlops * kElements / 1e6));
  // A device without them, beside one that has them, has those of its products.
  ir::Cluster mixed = known;
  mixed.devices[ir::DeviceId(1u)].depthwise.count = mixed.devices[ir::DeviceId(1u)].functions.count = 0;
  mixed.devices[ir::DeviceId(1u)].compute = FlopsPerSecond(1e4);
  CHECK(forward(mixed, "depthwise") ==
        doctest::Approx(kOverhead + depthwise / 1e4 + 4 * (2 * kElements + kWeights) / 1e6));
  CHECK(forward(mixed, "softmax") == doctest::Approx(kOverhead + wire::kSoftmaxFlops * kElements / 1e4));
}

TEST_CASE("products, convolutions and attention of a 16-bit type have rates of their own, else those of float32") {
  const auto seconds = [](const ir::Cluster& cluster, const std::string& type, const char* node) {
    const std::string net = R"(graphpipe.graph/1
i0  %0 = data "x" : TYPE[B,8,6,6]
p0  %1 = weight trainable "w" filled(0) : TYPE[16,8,3,3]
p1  %2 = weight trainable "m" filled(0) : TYPE[6,6]
n0  %3 = Conv(%0, %1) {pads = [1,1,1,1]} : TYPE[B,16,6,6] from "convolution"
n1  %4 = Linear(%3, %2) {transB=0} : TYPE[B,16,6,6] from "product"
n2  %5, %6 = Attention(%4, %4, %4) {causal=0, scale=1.0} : TYPE[B,16,6,6], f32[B,16,6] from "attention"
n3  %7 = Cast(%5) {to = "f32"} : f32[B,16,6,6] from "cast"
out model "logits" %7
)";
    std::string text = net;
    for (size_t at; (at = text.find("TYPE")) != std::string::npos;) text.replace(at, 4, type);
    const auto plan = price(trained(text.c_str()), cluster, {.batch = Samples(4)});
    REQUIRE(plan.ok());
    return plan->nodes[node_named(*plan, node)].forward.at(4.0) - 1e-6;
  };
  // Slow, as Approx takes numbers for equal that differ by 1e-5.
  ir::Cluster known = ir::equal_devices(2);
  for (ir::Device& device : known.devices) {
    device.compute = FlopsPerSecond(1e3), device.convolution = FlopsPerSecond(2e3);
    device.attention = FlopsPerSecond(3e3);
    device.bfloat16 = {FlopsPerSecond(4e3), FlopsPerSecond(5e3), FlopsPerSecond(6e3)};
    device.float16 = {.products = FlopsPerSecond(7e3)};
  }
  const auto ratio = [&](const ir::Cluster& cluster, const char* type, const char* node) {
    return seconds(known, "f32", node) / seconds(cluster, type, node);
  };
  CHECK(ratio(known, "bf16", "product") == doctest::Approx(4));
  CHECK(ratio(known, "bf16", "convolution") == doctest::Approx(5.0 / 2));
  CHECK(ratio(known, "bf16", "attention") == doctest::Approx(6.0 / 3));
  // Of convolutions and attention no rate is known: that of products.
  CHECK(ratio(known, "f16", "product") == doctest::Approx(7));
  CHECK(ratio(known, "f16", "convolution") == doctest::Approx(7.0 / 2));
  CHECK(ratio(known, "f16", "attention") == doctest::Approx(7.0 / 3));
  // No rate at all: those of float32.
  ir::Cluster unknown = known;
  for (ir::Device& device : unknown.devices) device.bfloat16 = device.float16 = {};
  for (const char* node : {"product", "convolution", "attention"}) CHECK(ratio(unknown, "bf16", node) == 1);
  // The slowest of all devices counts, where one has no rate its own of float32.
  ir::Cluster mixed = known;
  mixed.devices[ir::DeviceId(1u)].bfloat16 = {};
  mixed.devices[ir::DeviceId(1u)].compute = FlopsPerSecond(5e3);
  mixed.devices[ir::DeviceId(0u)].float16.attention = FlopsPerSecond(8e3);
  CHECK(ratio(mixed, "bf16", "product") == doctest::Approx(4));
  CHECK(ratio(mixed, "bf16", "convolution") == doctest::Approx(1));
  CHECK(ratio(mixed, "bf16", "attention") == doctest::Approx(1));
  CHECK(ratio(mixed, "f16", "attention") == doctest::Approx(7.0 / 3));
}

TEST_CASE("weights have the passes of their optimizer, and matrices its products") {
  for (const wire::OptimizerEntry& optimizer : wire::optimizers()) {
    CAPTURE(optimizer.name);
    const auto plan = price(trained(kModel), ir::equal_devices(2), {.batch = Samples(8), .optimizer = &optimizer});
    REQUIRE(plan.ok());
    const ir::PlanNode& second = plan->nodes[node_named(*plan, "second")];
    const ir::WeightGroup& group = plan->weight_groups[second.weights.front()];
    CHECK(group.update_passes == optimizer.passes.matrix);
    CHECK(group.update_flops == wire::update_flops(optimizer, 4, 16));
    CHECK(group.update_scratch == wire::update_scratch(optimizer, {.elements = 64, .rows = 4, .columns = 16}));
  }
}

TEST_CASE("tables and what is no matrix have passes of their own, and weights of 16 bits twice as many") {
  const char* kLookUp = R"(graphpipe.graph/1
i0  %0 = data "ids" : i64[B]
p0  %1 = weight trainable "table" filled(0) : f32[10,4]
p1  %2 = weight trainable "scale" filled(0) : f32[4]
p2  %3 = weight trainable "half" filled(0) : f16[4]
n0  %4 = Gather(%1, %0) {axis=0} : f32[B,4] from "look-up"
n1  %5 = Mul(%4, %2) : f32[B,4] from "scaled"
n2  %6 = Cast(%3) {to="f32"} : f32[4] from "wider"
n3  %7 = Add(%5, %6) : f32[B,4] from "shifted"
out model "logits" %7
)";
  const wire::OptimizerEntry& muon = wire::optimizer_named("muon");
  const auto plan = price(trained(kLookUp), ir::equal_devices(2), {.batch = Samples(8), .optimizer = &muon});
  REQUIRE(plan.ok());
  int seen = 0;
  for (const ir::WeightGroup& group : plan->weight_groups) {
    const bool is_table = group.name.raw() == "table", is_half = group.name.raw() == "half";
    CAPTURE(group.name.raw());
    CHECK(group.update_passes == (is_table ? muon.passes.table : muon.passes.other) * (is_half ? 2 : 1));
    CHECK(group.update_flops == 0);
    // Main weights take the gradient in float32.
    CHECK(group.update_scratch == Bytes(is_half ? 4 * 4 : 0));
    ++seen;
  }
  CHECK(seen == 3);
}

TEST_CASE("an update of rows gathers those that were looked up, some of them at once") {
  const auto scratch = [](int64_t rows, int64_t batch) {
    const std::string model = text(R"(graphpipe.graph/1
i0  %0 = data "ids" : i64[B]
p0  %1 = weight trainable "table" filled(0) : f32[)",
                                   rows, R"(,4]
n0  %2 = Gather(%1, %0) {axis=0} : f32[B,4] from "look-up"
out model "logits" %2
)");
    const auto plan =
        price(trained(model.c_str()), ir::equal_devices(1),
              {.batch = Samples(batch), .optimizer = &wire::optimizer_named("adagrad"), .updates_rows = true});
    REQUIRE(plan.ok());
    return plan->weight_groups[ir::WeightGroupId(0u)].update_scratch.count;
  };
  CHECK(scratch(100, 8) == 8 * 2 * 16);  // rows of the table and of the sum
  CHECK(scratch(5, 8) == 5 * 2 * 16);
  CHECK(scratch(100'000, 50'000) == wire::rows_updated_together(4) * 2 * 16);
  CHECK(wire::rows_updated_together(4) == 4096);
  CHECK(wire::rows_updated_together(1000) == 64);
}

TEST_CASE("a table that a product reads too is updated as one, and one of 16 bits as a whole") {
  const auto scratch = [](const char* model, const char* optimizer) {
    const auto plan =
        price(trained(model), ir::equal_devices(1),
              {.batch = Samples(2), .optimizer = &wire::optimizer_named(optimizer), .updates_rows = true});
    REQUIRE(plan.ok());
    return plan->weight_groups[ir::WeightGroupId(0u)].update_scratch;
  };
  CHECK(scratch(R"(graphpipe.graph/1
i0  %0 = data "ids" : i64[B]
p0  %1 = weight trainable "table" filled(0) : f32[10,4]
n0  %2 = Gather(%1, %0) {axis=0} : f32[B,4] from "look-up"
n1  %3 = Transpose(%1) {perm=[1,0]} : f32[4,10] from "head"
n2  %4 = MatMul(%2, %3) : f32[B,10] from "product"
out model "logits" %4
)",
                "muon") == Bytes(0));
  CHECK(scratch(R"(graphpipe.graph/1
i0  %0 = data "ids" : i64[B]
p0  %1 = weight trainable "table" filled(0) : f16[10,4]
n0  %2 = Gather(%1, %0) {axis=0} : f16[B,4] from "look-up"
n1  %3 = Cast(%2) {to="f32"} : f32[B,4] from "wider"
out model "logits" %3
)",
                "sgd") == Bytes(4 * 40));
}

TEST_CASE("the output of the Relu is saved by its own backward and by the next weight gradient") {
  const auto plan = price(trained(kModel), ir::equal_devices(2), {.batch = Samples(8)});
  REQUIRE(plan.ok());
  const PlanNodeId relu = node_named(*plan, "relu"), second = node_named(*plan, "second");
  bool found = false;
  for (const ir::PlanValue& value : plan->values) {
    if (value.producer != relu) continue;
    found = true;
    CHECK(value.readers == std::vector{second});
    CHECK(value.gradient_readers == std::vector{second});
    CHECK(value.saved_by_weight_gradient == std::vector{second});
    CHECK(value.bytes.at(8.0) == 8 * 16 * 4);
    CHECK(value.gradient_bytes.at(8.0) == 8 * 16 * 4);
  }
  CHECK(found);
}

TEST_CASE("data that a weight gradient reads stays with its node, and gradients that it reads come beside the stash") {
  const auto plan = price(trained(kModel), ir::equal_devices(2), {.batch = Samples(8)});
  REQUIRE(plan.ok());
  const ir::PlanNode& first = plan->nodes[node_named(*plan, "first")];
  CHECK(first.stash_to_input_gradient.at(8.0) == 8 * 8 * 4);
  CHECK(first.kept_gradients.at(8.0) == 8 * 16 * 4);
  CHECK(first.stash_to_weight_gradient.at(8.0) == 8 * (8 + 16) * 4);
  const ir::PlanNode& relu = plan->nodes[node_named(*plan, "relu")];
  CHECK(relu.stash_to_input_gradient.is_zero());
  // The gradient of the Relu's output, which only the Relu reads, is alive while it runs backward.
  CHECK(relu.workspace.at(8.0) >= 8 * 16 * 4);
}

TEST_CASE("a cross-entropy loss adds over samples: it does not forbid replicas, and its nodes stay together") {
  const auto plan = price(trained(kModel), ir::equal_devices(2), {.batch = Samples(8)});
  REQUIRE(plan.ok());
  for (const ir::PlanNode& node : plan->nodes) CHECK(node.scope == ir::SampleScope::kEach);
  REQUIRE(plan->colocated.size() == 1);
  CHECK(plan->colocated.front().size() == 2);
}

TEST_CASE("nodes that update one buffer stay together: one process has one copy of it") {
  const std::string head = R"(graphpipe.graph/1
i0  %0 = data "x" : f32[B,4]
p0  %1 = weight trainable "scale" filled(1) : f32[4]
p1  %2 = buffer "mean" filled(0) : f32[4]
p2  %3 = buffer "variance" filled(1) : f32[4]
p3  %4 = buffer "other mean" filled(0) : f32[4]
p4  %5 = buffer "other variance" filled(1) : f32[4]
n0  %6, %7, %8 = BatchNormalization(%0, %1, %1, %2, %3) {training_mode=1} : f32[B,4], f32[4] @mixed, f32[4] @mixed from "first"
n1  %9 = Relu(%6) : f32[B,4] from "relu"
)";
  const auto sets_with = [&](const std::string& statistics) {
    const std::string model = head + "n2  %10, %11, %12 = BatchNormalization(%9, %1, %1, " + statistics +
                              ") {training_mode=1} : f32[B,4], f32[4] @mixed, f32[4] @mixed from \"second\"\n"
                              "out model \"logits\" %10\n";
    const auto plan = price(trained(model.c_str()), ir::equal_devices(2), {.batch = Samples(8)});
    REQUIRE(plan.ok());
    const std::vector both = {node_named(*plan, "first"), node_named(*plan, "second")};
    return std::ranges::count(plan->colocated, both);
  };
  CHECK(sets_with("%2, %3") == 1);
  CHECK(sets_with("%4, %5") == 0);
}

TEST_CASE("a similarity of samples mixes them, and so does everything that reads it") {
  constexpr const char* kContrastive = R"(graphpipe.graph/1
i0  %0 = data "x" : f32[B,8]
i1  %1 = data "y" : f32[8,B]
p0  %2 = weight trainable "w" filled(0) : f32[8,8]
n0  %3 = MatMul(%0, %2) : f32[B,8] from "project"
n1  %4 = MatMul(%3, %1) : f32[B,B] from "similarity"
out model "logits" %4
)";
  auto parsed = ir::parse_graph(kContrastive);
  REQUIRE(parsed.ok());
  passes::PassContext context;
  context.loss = {.kind = "contrastive", .output = ModelText("logits")};
  const auto graph = passes::run_pipeline(*parsed, context);
  REQUIRE(graph.ok());
  const auto plan = price(*graph, ir::equal_devices(2), {.batch = Samples(8)});
  REQUIRE(plan.ok());
  CHECK(plan->nodes[node_named(*plan, "project")].scope == ir::SampleScope::kEach);
  CHECK(plan->nodes[node_named(*plan, "similarity")].scope == ir::SampleScope::kBatch);
  CHECK(plan->nodes[PlanNodeId(plan->nodes.size() - 1)].scope == ir::SampleScope::kBatch);
  // The similarity grows with the square of the samples.
  for (const ir::PlanValue& value : plan->values)
    if (value.producer == node_named(*plan, "similarity")) CHECK(value.bytes.at(8.0) == 8 * 8 * 4);
}

TEST_CASE("a measured profile gives the seconds, and one that misses an operator is refused") {
  const ir::Graph graph = trained(kModel);
  ir::Profile profile;
  for (ir::NodeId id : graph.node_ids()) {
    if (graph.node(id).phase != ir::Phase::kForward) continue;
    for (int64_t samples : {1, 8})
      profile.operators.push_back({.signature = ModelText(op_signature(graph, graph.node(id))),
                                   .samples = Samples(samples),
                                   .forward = Seconds(static_cast<double>(samples)),
                                   .weight_gradient = Seconds(2.0 * static_cast<double>(samples))});
  }
  const auto plan = price(graph, ir::equal_devices(2), {.batch = Samples(8), .profile = &profile});
  REQUIRE(plan.ok());
  const ir::PlanNode& first = plan->nodes[node_named(*plan, "first")];
  CHECK(first.forward.at(4.0) == doctest::Approx(4));
  CHECK(first.weight_gradient.at(8.0) == doctest::Approx(16));
  profile.operators.clear();
  const auto refused = price(graph, ir::equal_devices(2), {.batch = Samples(8), .profile = &profile});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.problems().front().code == Code::kBadProfile);
}

TEST_CASE("devices of unequal speed have prices of their own, and a stage those of its slowest device") {
  const ir::Graph graph = trained(kModel);
  ir::Cluster cluster = ir::equal_devices(3);
  cluster.devices[ir::DeviceId(1u)].compute.count *= 4;
  cluster.devices[ir::DeviceId(1u)].memory_bandwidth.count *= 4;
  cluster.devices[ir::DeviceId(1u)].launch_overhead.count /= 4;
  const auto plan = price(graph, cluster, {.batch = Samples(8)});
  REQUIRE(plan.ok());
  CHECK(verify_plan_graph(*plan).ok());
  CHECK(plan->kind_of_device == std::vector{0, 1, 0});
  const ir::PlanNode& first = plan->nodes[node_named(*plan, "first")];
  REQUIRE(first.by_kind.size() == 2);
  CHECK(first.by_kind[0].forward == first.forward);
  CHECK(first.by_kind[1].forward.at(8.0) == doctest::Approx(first.forward.at(8.0) / 4));
  const auto seconds_on = [&](std::vector<ir::DeviceId> devices) {
    ir::Assignment all;
    all.stage_of.resize(plan->nodes.size(), ir::StageId(0u));
    all.choice.push_back({.devices = std::move(devices), .micro_batch = Samples(8)});
    const auto stages = build_stage_graph(*plan, all);
    REQUIRE(stages.ok());
    return stages->stages[ir::StageId(0u)].forward.at(4.0);
  };
  CHECK(seconds_on({ir::DeviceId(1u)}) == doctest::Approx(seconds_on({ir::DeviceId(0u)}) / 4));
  CHECK(seconds_on({ir::DeviceId(0u), ir::DeviceId(1u)}) == seconds_on({ir::DeviceId(2u)}));
  // Alike devices need no prices of their own.
  CHECK(price(graph, ir::equal_devices(2), {.batch = Samples(8)})->kind_of_device.empty());
}
