// Models that hold the batch of their export in a constant: all are refused with the node's name and the export call.

#include "frontend/check_batch.h"

#include <algorithm>

#include "ir/graph_text.h"
#include "tests/support/noted_models.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using graphpipe::testing::exported_model;
using graphpipe::testing::import_bytes;
using graphpipe::testing::import_text;
using graphpipe::testing::reports;
using graphpipe::testing::taken_by;

namespace {

void check_refused(const std::string& body, const std::string& node, const std::string& batch) {
  CAPTURE(body);
  const Diagnostics problems = import_text(body).problems();
  for (const Diagnostic& problem : problems) CAPTURE(to_line(problem));
  CHECK(reports(problems, Code::kBatchNotFound, "'" + node + "'"));
  CHECK(reports(problems, Code::kBatchNotFound, batch));
  CHECK(reports(problems, Code::kBatchNotFound, "dynamic_shapes"));
}

}  // namespace

TEST_CASE("a Reshape to the batch of the export, in a file that names its batch") {
  check_refused(R"(g (float[N,2,4] x) => (float[M,4] y) <int64[2] target = {14, 4}> {
    [baked] y = Reshape(x, target) })",
                "baked", "batch of 7");
}

TEST_CASE("an Expand to the batch of the export is named where its result meets the batch") {
  check_refused(R"(g (float[N,3,5] x) => (float[N,4,5] y)
    <float[1,1,5] token = {1, 2, 3, 4, 5}, int64[3] target = {4, 1, 5}> {
    [grow] tokens = Expand(token, target)
    [join] y = Concat<axis = 1>(tokens, x) })",
                "grow", "batch of 4");
}

TEST_CASE("a ConstantOfShape of the batch of the export, known while importing") {
  check_refused(R"(g (float[N,5] x) => (float[N,5] y) <int64[2] shape = {6, 5}> {
    [zeros] z = ConstantOfShape(shape)
    [sum] y = Add(x, z) })",
                "zeros", "batch of 6");
}

TEST_CASE("a label that is flattened to the batch of the export") {
  check_refused(R"(g (float[N,7,10] logits, int64[N,7] label) => (float loss) <int64[2] rows = {-1, 10}> {
    flat = Reshape(logits, rows)
    all = Constant<value_ints = [28]>()
    [flatten_label] l = Reshape(label, all)
    loss = SoftmaxCrossEntropyLoss(flat, l) })",
                "flatten_label", "batch of 4");
}

TEST_CASE("a Reshape that puts the batch where its -1 is, under an output that the file calls the batch") {
  check_refused(R"(g (float[N,4,6] x) => (float[N,4,6] y) <int64[3] target = {4, -1, 6}> {
    [view] v = Reshape(x, target)
    y = Relu(v) })",
                "view", "its axis 0 is the batch");
}

TEST_CASE("an axis of pixels that the file calls the batch is none") {
  const auto imported = [](const std::string& declared, const std::string& node) {
    return import_text("g (float[N,2,6,6] x, float[2,2,3,3] w) => (float[" + declared + "] y) { " + node + " }");
  };
  CHECK(imported("N,2,N,M", "y = Conv(x, w)").ok());
  CHECK(imported("N,2,M,N", "y = ConvTranspose(x, w)").ok());
  CHECK(!imported("N,N,4,4", "y = Conv(x, w)").ok());
  CHECK(!imported("N,2,N,M", "y = Relu(x)").ok());
}

TEST_CASE("an example of one sample is named before what it breaks, and what to do is to give two") {
  const std::string named = R"(g (float[N,2,4] x) => (float[M,4] y) <int64[2] target = {2, 4}> {
    [baked] y = Reshape(x, target) })";
  const std::string fixed = R"(g (float[1,4,3,2] x) => (float[4,3,2] y) <int64[3] target = {4, 3, 2}> {
    t = Transpose<perm = [1, 2, 0, 3]>(x)
    [baked] y = Reshape(t, target) })";
  for (const std::string& body : {named, fixed}) {
    check_refused(body, "baked", "the export's example had a batch of 1, which a constant here may hold: ");
    CHECK(reports(import_text(body).problems(), Code::kBatchNotFound, "two samples or more"));
  }
}

TEST_CASE("a value that the dynamo exporter traced with one sample where the batch is: constants hold a 1 for it") {
  const auto imported = [](const std::string& sum, const std::map<std::string, std::string>& calls) {
    const std::string body = "g (float[N,8] x, float[1,8] p_w) => (float loss) <" + sum +
                             " sum, float traced = {1}> { sum = Add(x, p_w) all = ReduceSum<keepdims = 0>(sum)"
                             " loss = Div(all, traced) }";
    return import_bytes(exported_model(body, calls, {"w"}));
  };
  const std::map<std::string, std::string> calls = {{"sum", taken_by("add.Tensor", "%x, %p_w")}};
  const Diagnostics problems = imported("float[1,8]", calls).problems();
  CHECK(reports(problems, Code::kBatchNotFound, "'sum' has the shape [1, 8] in the file, and [B, 8] by its inputs"));
  CHECK(reports(problems, Code::kBatchNotFound, "two samples or more"));
  CHECK(imported("float[N,8]", calls).ok());
  CHECK(imported("float[1,8]", {}).ok());  // of other exporters, with a warning
}

TEST_CASE("a sum over the samples that is divided by a multiple of the fixed batch may be a mean over it") {
  const auto warned = [](const std::string& batch, const std::string& loss) {
    const auto imported =
        import_text("g (float[" + batch + ",3] x) => (float loss) <float four = {4}, float twelve = {12}," +
                    " float k = {10}> { " + loss + " }");
    REQUIRE(imported.ok());
    return std::ranges::any_of(imported->notes, [](const Diagnostic& note) {
      return note.severity == Severity::kWarning && note.message.find("divides a sum over the samples") == 0;
    });
  };
  const std::string sum = "s = ReduceSum<keepdims = 0>(x) ";
  CHECK(warned("4", sum + "loss = Div(s, four)"));
  CHECK(warned("4", sum + "h = Mul(k, s) m = ReduceMean<keepdims = 0>(x) a = Add(m, h) loss = Div(a, twelve)"));
  CHECK_FALSE(warned("4", sum + "loss = Div(s, k)"));
  CHECK_FALSE(warned("N", sum + "loss = Div(s, four)"));
  CHECK_FALSE(warned("4", "m = ReduceMean<keepdims = 0>(x) loss = Div(m, four)"));
}

TEST_CASE("the same models with the batch computed are taken") {
  CHECK(import_text(R"(g (float[N,7,10] logits, int64[N,7] label) => (float loss) <int64[2] rows = {-1, 10}> {
    flat = Reshape(logits, rows)
    all = Constant<value_ints = [-1]>()
    l = Reshape(label, all)
    loss = SoftmaxCrossEntropyLoss(flat, l) })")
            .ok());
}

TEST_CASE("a graph whose types hold for one batch only is found by inferring it at two") {
  // Written by hand: no frontend makes it. The 4 of the second Reshape is right for 2 samples alone.
  const char* const kHead = "graphpipe.graph/1\ni0  %0 = data \"x\" : f32[B,2]\n";
  const auto good = ir::parse_graph(std::string(kHead) + "n0  %1 = Reshape(%0) {shape=dims[2*B]} : f32[2*B]\n");
  const auto bad =
      ir::parse_graph(std::string(kHead) + "n0  %1 = Reshape(%0) {shape=dims[4]} : f32[4] @mixed from \"wrong\"\n");
  REQUIRE(good.ok());
  REQUIRE(bad.ok());
  CHECK(check_two_batches(*good, Samples(2)).ok());
  const Status refused = check_two_batches(*bad, Samples(2));
  REQUIRE_FALSE(refused.ok());
  CHECK(reports(refused.problems(), Code::kBatchNotFound, "with 4 samples"));
}

TEST_CASE("the batch that shapes have taken from the export") {
  using ir::Dim;
  CHECK(baked_batch({{Dim::batch(), Dim::fixed(3)}, {Dim::fixed(8), Dim::fixed(3)}}) == 8);
  CHECK(baked_batch({{Dim::batch(6)}, {Dim::fixed(24)}}) == 4);
  CHECK(baked_batch({{Dim::batch()}, {Dim::fixed(1)}}) == std::nullopt);
  CHECK(baked_batch({{Dim::batch(), Dim::fixed(3)}, {Dim::fixed(4)}}) == std::nullopt);
}
