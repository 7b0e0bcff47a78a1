// Which nodes work on samples together: by graphs as text, with the losses that passes attach.

#include "cost/sample_scopes.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "cost/price.h"
#include "ir/graph_text.h"
#include "passes/pipeline.h"

using namespace graphpipe;
using namespace graphpipe::cost;
using ir::SampleScope;

namespace {

/// `body` after the inputs x [B,4], y [B,4], c [B] (classes), the weight w [4,4] and, of no batch, k [] and s [4].
Result<ir::Graph> trained(const std::string& body, const ir::LossSpec& loss) {
  const std::string text = R"(graphpipe.graph/1
i0  %0 = data "x" : f32[B,4]
i1  %1 = data "y" : f32[B,4]
i2  %2 = data "c" : i64[B]
p0  %3 = weight trainable "w" filled(0.5) : f32[4,4]
p1  %4 = constant "k" filled(2) : f32[]
p2  %5 = constant "s" filled(1) : f32[4]
)" + body;
  GP_TRY(ir::Graph graph, ir::parse_graph(text));
  passes::PassContext context;
  context.loss = loss;
  return passes::run_pipeline(std::move(graph), context);
}

struct Found {
  /// By operator, the widest.
  std::map<std::string, SampleScope> scope;
  std::map<std::string, int64_t> fewest;
  std::vector<std::string> additive;
};

Found scopes(const std::string& body, const ir::LossSpec& loss, const ScopeChoice& choice = {}) {
  const auto graph = trained(body, loss);
  for (const Diagnostic& problem : graph.problems()) MESSAGE(to_line(problem));
  REQUIRE(graph.ok());
  const SampleScopes all = sample_scopes(*graph, choice);
  Found found;
  for (const ir::NodeId id : graph->node_ids()) {
    if (graph->node(id).phase != ir::Phase::kForward) continue;
    const std::string& op = graph->node(id).op;
    found.scope[op] = std::max(found.scope[op], all.scope[id]);
    found.fewest[op] = std::max(found.fewest[op], all.fewest[id]);
  }
  for (const ir::NodeId id : all.additive) found.additive.push_back(graph->node(id).op);
  return found;
}

bool all_each(const Found& found) {
  return std::ranges::all_of(found.scope, [](const auto& entry) { return entry.second == SampleScope::kEach; });
}

ir::LossSpec own() { return {.kind = "output", .output = ModelText("loss")}; }

ir::LossSpec own_sum() { return {.kind = "output", .output = ModelText("loss"), .options = {{"sum", int64_t{1}}}}; }

const std::string kLogits = "n0  %6 = MatMul(%0, %3) : f32[B,4]\n";

}  // namespace

TEST_CASE("losses that add up over samples are divided as one likes, and share a stage") {
  const Found entropy = scopes(kLogits + "out model \"logits\" %6\n",
                               {.kind = "cross_entropy", .output = ModelText("logits"), .label = ModelText("c")});
  CHECK(all_each(entropy));
  CHECK(entropy.additive == std::vector<std::string>{"CrossEntropyLossSum", "Mul"});
  const Found squares = scopes(kLogits + "out model \"logits\" %6\n",
                               {.kind = "mse", .output = ModelText("logits"), .label = ModelText("target")});
  CHECK(all_each(squares));
}

TEST_CASE("a model's own mean of what each sample has alone adds up, through terms, factors and views") {
  const Found found = scopes(kLogits + R"(n1  %7 = ReduceMean(%6) {keepdims=0} : f32[] @mixed
n2  %8 = ReduceMean(%0) {keepdims=0} : f32[] @mixed
n3  %9 = Mul(%8, %4) : f32[] @mixed
n4  %10 = Add(%7, %9) : f32[] @mixed
n5  %11 = Div(%10, %4) : f32[] @mixed
n6  %12 = Add(%11, %4) : f32[] @mixed
out model "loss" %12
)",
                             own());
  CHECK(all_each(found));
  CHECK(found.additive.size() == 8);  // all but the matrix product, with the two of the loss
  const Found sum =
      scopes(kLogits + "n1  %7 = ReduceSum(%6) {keepdims=0} : f32[] @mixed\nout model \"loss\" %7\n", own_sum());
  CHECK(all_each(sum));
}

TEST_CASE("means side by side add up: all of them, some, and those that a row of weights weighs") {
  const std::string weights =
      "p3  %13 = constant \"half\" filled(0.5) : f32[2]\np4  %14 = constant \"one\" filled(1) : i64[]\n";
  const std::string stack = weights + kLogits + R"(n1  %7 = ReduceMean(%6) {keepdims=0} : f32[] @mixed
n2  %8 = ReduceMean(%0) {keepdims=0} : f32[] @mixed
n3  %9 = Unsqueeze(%7) {axes=[0]} : f32[1] @mixed
n4  %10 = Unsqueeze(%8) {axes=[0]} : f32[1] @mixed
n5  %11 = Concat(%9, %10) {axis=0} : f32[2] @mixed
)";
  for (const std::string& tail : {
           std::string("n6  %12 = ReduceSum(%11) {keepdims=0} : f32[] @mixed\n"),
           std::string("n6  %12 = Slice(%11) {axes=[0], ends=[2], starts=[1], steps=[1]} : f32[1] @mixed\n"),
           std::string("n6  %12 = MatMul(%13, %11) : f32[] @mixed\n"),
           std::string("n6  %12 = Gather(%11, %14) {axis=0} : f32[] @mixed\n"),
           // What several picks of one stack become.
           std::string("n6  %15, %16 = Split(%11) {axis=0, sizes=[1,1]} : f32[1] @mixed, f32[1] @mixed\n"
                       "n7  %12 = Sub(%15, %16) : f32[1] @mixed\n"),
       }) {
    CAPTURE(tail);
    CHECK(all_each(scopes(stack + tail + "out model \"loss\" %12\n", own())));
  }
}

TEST_CASE("what is neither a sum nor a mean over samples works on the batch, or on a micro-batch where that is asked") {
  const std::string mean = kLogits + "n1  %7 = ReduceMean(%6) {keepdims=0} : f32[] @mixed\n";
  for (const std::string& tail : {
           std::string("n2  %8 = Mul(%7, %7) : f32[] @mixed\n"),  // a square of a mean
           std::string("n2  %8 = Sqrt(%7) : f32[] @mixed\n"),     // no rule
           std::string("n2  %8 = ReduceMax(%6) {keepdims=0} : f32[] @mixed\n"),
       }) {
    CAPTURE(tail);
    const Found found = scopes(mean + tail + "out model \"loss\" %8\n", own());
    CHECK_FALSE(all_each(found));
    CHECK(found.scope.at("Linear") == SampleScope::kEach);
    CHECK(found.scope.at("ScaleBySamples") == SampleScope::kBatch);
    const Found alone = scopes(mean + tail + "out model \"loss\" %8\n", own(), {.losses = SampleScope::kMicroBatch});
    CHECK(alone.scope.at("ScaleBySamples") == SampleScope::kMicroBatch);
  }
  // What a number of the batch picks, and a quotient of integers, beside a sum.
  const std::string sums = R"(p3  %6 = constant "two" filled(2) : i64[]
n0  %7 = MatMul(%0, %3) : f32[B,4]
n1  %8 = ReduceSum(%7) {keepdims=0} : f32[] @mixed
n2  %9 = ReduceSum(%2) {keepdims=0} : i64[] @mixed
)";
  for (const std::string& tail :
       {std::string("n3  %10 = Gather(%5, %9) {axis=0} : f32[] @mixed\nn4  %11 = Add(%8, %10) : f32[] @mixed\n"
                    "out model \"loss\" %11\n"),
        std::string("n3  %10 = Div(%9, %6) : i64[] @mixed\nn4  %11 = Cast(%10) {to=\"f32\"} : f32[] @mixed\n"
                    "n5  %12 = Add(%8, %11) : f32[] @mixed\nout model \"loss\" %12\n")}) {
    CAPTURE(tail);
    CHECK_FALSE(all_each(scopes(sums + tail, own_sum())));
  }
  // A mean that is said to be a sum, and a sum that is said to be a mean, are what the model computes of all samples.
  CHECK(scopes(mean + "out model \"loss\" %7\n", own_sum()).scope.at("ReduceMean") == SampleScope::kBatch);
  CHECK(scopes(kLogits + "n1  %7 = ReduceSum(%6) {keepdims=0} : f32[] @mixed\nout model \"loss\" %7\n", own())
            .scope.at("ReduceSum") == SampleScope::kBatch);
}

TEST_CASE("ONNX's own cross entropy adds up: a plain mean, and one that leaves positions out by their label") {
  const auto with = [&](const std::string& attributes) {
    return scopes(kLogits + "n1  %7, %8 = SoftmaxCrossEntropyLoss(%6, %2) {" + attributes +
                      "} : f32[] @mixed, f32[B,4]\nout model \"loss\" %7\n",
                  own())
        .scope.at("SoftmaxCrossEntropyLoss");
  };
  CHECK(with("reduction=\"mean\"") == SampleScope::kEach);
  CHECK(with("ignore_index=-100, reduction=\"mean\"") == SampleScope::kEach);
}

TEST_CASE("a mean over counted labels that nothing tells sees the batch") {
  const auto scope_with = [&](const std::string& label) {
    return scopes(kLogits + label +
                      "n2  %8, %9 = SoftmaxCrossEntropyLoss(%6, %7) {ignore_index=-100, reduction=\"mean\"} : f32[] "
                      "@mixed, f32[B,4]\nout model \"loss\" %8\n",
                  own())
        .scope.at("SoftmaxCrossEntropyLoss");
  };
  CHECK(scope_with("n1  %7 = Identity(%2) : i64[B]\n") == SampleScope::kEach);
  CHECK(scope_with("n1  %7 = Neg(%2) : i64[B]\n") == SampleScope::kBatch);
}

TEST_CASE("similarities of all with all need two samples, from the first operator that makes them on") {
  const std::string body = R"(n0  %6 = MatMul(%0, %3) : f32[B,4]
n1  %7 = Transpose(%1) {perm=[1, 0]} : f32[4,B]
n2  %8 = MatMul(%6, %7) : f32[B,B]
n3  %9 = Mul(%8, %4) : f32[B,B]
out model "similarity" %9
)";
  const ir::LossSpec loss{.kind = "contrastive", .output = ModelText("similarity")};
  const Found found = scopes(body, loss);
  CHECK(found.scope.at("Transpose") == SampleScope::kEach);
  CHECK(found.scope.at("ContrastiveLossSum") == SampleScope::kBatch);
  CHECK(found.fewest.at("ContrastiveLossSum") == 2);
  const auto graph = trained(body, loss);
  REQUIRE(graph.ok());
  const auto one = price(*graph, ir::equal_devices(1), {.batch = Samples(1)});
  REQUIRE_FALSE(one.ok());
  CHECK(one.problems().front().code == Code::kUntrainable);
  CHECK(exit_code_of(one.problems().front().code) == 3);
  CHECK(one.problems().front().hint.find("--batch") != std::string::npos);
  CHECK(price(*graph, ir::equal_devices(1), {.batch = Samples(2)}).ok());
}

TEST_CASE("statistics of normalisation have a scope of their own") {
  const std::string body =
      R"(n0  %6, %7, %8 = BatchNormalization(%0, %5, %5, %5, %5) {training_mode=1} : f32[B,4], f32[4] @mixed, f32[4] @mixed
n1  %9 = MatMul(%6, %3) : f32[B,4]
out model "logits" %9
)";
  const ir::LossSpec loss{.kind = "cross_entropy", .output = ModelText("logits"), .label = ModelText("c")};
  const Found batch = scopes(body, loss, {.losses = SampleScope::kMicroBatch});
  CHECK(batch.scope.at("BatchNormalization") == SampleScope::kBatch);
  CHECK(batch.fewest.at("BatchNormalization") == 2);  // one value of a channel has no deviation
  CHECK(batch.scope.at("Linear") == SampleScope::kEach);
  const Found micro = scopes(body, loss, {.statistics = SampleScope::kMicroBatch});
  CHECK(micro.scope.at("BatchNormalization") == SampleScope::kMicroBatch);
}

TEST_CASE("statistics need a second sample where one has a single value of a channel, wherever its axis is") {
  const auto fewest = [](const std::string& shape) {
    const auto graph = ir::parse_graph(text("graphpipe.graph/1\ni0  %0 = data \"x\" : f32", shape,
                                            "\np0  %1 = constant \"s\" filled(1) : f32[4]\n"
                                            "n0  %2, %3, %4 = BatchNormalization(%0, %1, %1, %1, %1) {training_mode=1}",
                                            " : f32", shape, ", f32[4] @mixed, f32[4] @mixed\n"));
    for (const Diagnostic& problem : graph.problems()) MESSAGE(to_line(problem));
    REQUIRE(graph.ok());
    const SampleScopes all = sample_scopes(*graph, {.statistics = SampleScope::kMicroBatch});
    return all.fewest[ir::NodeId(0)];
  };
  CHECK(fewest("[B,4]") == 2);
  CHECK(fewest("[B,4,1,1]") == 2);
  CHECK(fewest("[1,4,B] @axis 2") == 2);
  CHECK(fewest("[3*B,4]") == 1);
  CHECK(fewest("[B,4,2]") == 1);
  CHECK(fewest("[2,4,B] @axis 2") == 1);
}

TEST_CASE(
    "a counted mean beside another term has a divisor of its own; times another it sees the batch, unless all labels "
    "count") {
  const std::string before = R"(n0  %6 = MatMul(%0, %3) : f32[B,4] from "head"
n1  %7, %8 = SoftmaxCrossEntropyLoss(%6, %2) {ignore_index=-100, reduction="mean"} : f32[] @mixed, f32[B,4] from "ce"
n2  %9 = Sub(%6, %1) : f32[B,4] from "difference"
n3  %10 = Mul(%9, %9) : f32[B,4] from "square"
n4  %11 = ReduceMean(%10) {keepdims=0, axes=[0,1]} : f32[] @mixed from "mse"
n5  %12 = )";
  const std::string after = R"((%7, %11) : f32[] @mixed from "both"
out model "loss" %12
)";
  const ir::LossSpec loss{.kind = "output", .output = ModelText("loss")};
  CHECK(all_each(scopes(before + "Add" + after, loss)));
  CHECK(all_each(scopes(before + "Add" + after, loss, {.all_labels_count = true})));
  CHECK(scopes(before + "Mul" + after, loss).scope.at("SoftmaxCrossEntropyLoss") == SampleScope::kBatch);
}
