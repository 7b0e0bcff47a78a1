// What the dynamo exporter says of a call and not of the operators that it writes for it.

#include "frontend/exported_call.h"

#include "tests/support/count_ops.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

namespace pb = graphpipe_onnx;

// The model with this call as the origin of its first node.
Result<Imported> import_exported(const std::string& body, const std::string& call, const ImportRequest& request = {}) {
  pb::ModelProto model = parse_onnx_text(body);
  auto& note = *model.mutable_graph()->mutable_node(0)->add_metadata_props();
  note.set_key("pkg.torch.onnx.fx_node");
  const std::string keywords = call.find("kwargs") == std::string::npos ? ", kwargs = {})" : ")";
  note.set_value("%e : [num_users=1] = call_function[target=torch.ops." + call + keywords);
  return import_bytes(model.SerializeAsString(), request);
}

const std::string kLookUp =
    "g (int64[N,5] ids) => (float[N,5,2] y) <float[3,2] w = {1,2,3,4,5,6}> { y = Gather(w, ids) }";
const std::string kScatter =
    "g (float[N,3] x, int64[N,4] i, float[N,4] u) => (float[N,3] y) { y = ScatterElements<axis = 1>(x, i, u) }";

}  // namespace

TEST_CASE("of a trace its last line is kept, behind those of callers that name two members") {
  const std::string frame = "File \"model.py\", line 3, in forward\n    ";
  const std::string last = frame + "return x * gain";
  const std::string trace = text(frame, "y = self.model(x)\n", frame, "y = self.block(x, self.gain)\n", last);
  const std::string kept = place_of_call(kStackTrace, trace);
  CHECK(callers_in(kept) == "    y = self.block(x, self.gain)\n");
  CHECK(code_in(kept) == last);
  CHECK(callers_in(place_of_call(kStackTrace, last)).empty());
  CHECK(place_of_call(kStackTrace, "y = self.block(x, self.gain)").empty());
}

TEST_CASE("a call is its target and its arguments, and other text is none") {
  const auto call = parse_exported_call(
      "%x : [num_users=2] = call_function[target=torch.ops.aten.a.b](args = (%p, [1, (2, 3)], -1, mean), kwargs = {})");
  REQUIRE(call);
  CHECK(call->target == "aten.a.b");
  CHECK(call->arguments == std::vector<std::string>{"%p", "[1, (2, 3)]", "-1", "mean"});
  CHECK(call->argument(4).empty());
  for (const std::string text : {"", "call_function", "call_function[target=torch.ops.aten.a", "](args = (",
                                 "](args = (call_function[target=torch.ops.a"})
    CHECK_FALSE(parse_exported_call(text));
  const auto cut = parse_exported_call("call_function[target=torch.ops.aten.a](args = (%p, [1");
  REQUIRE(cut);
  CHECK(cut->arguments == std::vector<std::string>{"%p", "[1"});
}

TEST_CASE("a detached value is the same forwards and lets no gradient through, rows that a mask picks too") {
  const std::string detach = "aten.detach.default](args = (%x,)";
  const auto detached = import_exported("g (float[N,3] x) => (float[N,3] y) { d = Identity(x) y = Exp(d) }", detach);
  CHECK(nodes_of(detached) == "Detach(%0) : f32[B,3]\nExp(%1) : f32[B,3]\n");
  CHECK(reports(detached->notes, Code::kLostByExport, "no gradient"));
  const auto other = import_exported("g (float[N,3] x) => (float[N,3] y) { d = Identity(x) y = Exp(d) }",
                                     "aten.alias.default](args = (%x,)");
  CHECK(nodes_of(other) == "Exp(%0) : f32[B,3]\n");
  // A weight that is detached where it is read stays one parameter.
  const auto weight = import_exported(
      "g (float[N,3] x) => (float[N,3] y) <float[3] w = {1,2,3}> { d = Identity(w) a = Mul(x, d) y = Add(a, w) }",
      "aten.detach.default](args = (%w,)");
  REQUIRE(weight.ok());
  CHECK(weight->graph.param_count() == 1);
  CHECK(count_ops(weight->graph, "Detach") == 1);
  CHECK(nodes_of(import_exported("g (int64[N,3] x) => (int64[N,3] y) { d = Identity(x) y = Neg(d) }", detach)) ==
        "Neg(%0) : i64[B,3]\n");
}

TEST_CASE("the padding of nn.Embedding is kept out of the gradient, and said") {
  const auto padded = import_exported(kLookUp, "aten.embedding.default](args = (%p_w, %ids, 1)");
  CHECK(nodes_of(padded) == "Gather(%w1, %0) {axis=0, from_first_row=1, padding_row=1} : f32[B,5,2]\n");
  CHECK(reports(padded->notes, Code::kLostByExport, "row 1 of the table"));
  for (const std::string call :
       {"aten.embedding.default](args = (%p_w, %ids)", "aten.embedding.default](args = (%p_w, %ids, -1)"})
    CHECK(nodes_of(import_exported(kLookUp, call)) == "Gather(%w1, %0) {axis=0, from_first_row=1} : f32[B,5,2]\n");
  // Other look-ups count negative ids from the end, as ONNX says.
  CHECK(nodes_of(import_exported(kLookUp, "aten.other](args = (%p_w, %ids, 1)")) ==
        "Gather(%w1, %0) {axis=0} : f32[B,5,2]\n");
  const auto scaled = import_exported(kLookUp, "aten.embedding.default](args = (%p_w, %ids, -1, True)");
  REQUIRE(scaled.ok());
  CHECK(reports(scaled->notes, Code::kLostByExport, "scale_grad_by_freq"));
  ImportRequest request;
  request.spec.loss.kind = "mse";
  const auto trained = import_exported(kLookUp, "aten.embedding.default](args = (%p_w, %ids, -1, True)", request);
  REQUIRE(!trained.ok());
  CHECK(reports(trained.problems(), Code::kLostByExport, "--accept"));
}

TEST_CASE("a loss with smoothed labels, which the file leaves out, is trained only where the user accepts it") {
  const std::string loss = "g (float[N,3] x, int64[N] t) => (float loss) { loss = SoftmaxCrossEntropyLoss(x, t) }";
  const std::string plain = "aten.cross_entropy_loss.default](args = (%x, %t", smooth = plain + ", None, 1, -100, 0.2)";
  ImportRequest request;
  request.spec.loss.kind = "output";
  for (const std::string& call : {plain + ")", plain + ", None, 1, -100, 0.0)"})
    CHECK(import_exported(loss, call, request).ok());
  const auto refused = import_exported(loss, smooth, request);
  REQUIRE(!refused.ok());
  CHECK(reports(refused.problems(), Code::kLostByExport, "label_smoothing=0.2"));
  request.spec.accepts_losses = true;
  const auto accepted = import_exported(loss, smooth, request);
  REQUIRE(accepted.ok());
  CHECK(reports(accepted->notes, Code::kLostByExport, "label_smoothing=0.2"));
}

TEST_CASE("a scattered mean that the file writes without its reduction is a sum over a count, and said") {
  const auto mean = import_exported(kScatter, "aten.scatter_reduce.two](args = (%x, 1, %i, %u, mean)");
  CHECK(nodes_of(mean) ==
        "Full() {shape=dims[B,3], to=\"f32\", value=1.0} : f32[B,3]\n"
        "Full() {shape=dims[B,4], to=\"f32\", value=1.0} : f32[B,4]\n"
        "ScatterElements(%0, %1, %2) {axis=1, reduction=\"add\"} : f32[B,3]\n"
        "ScatterElements(%3, %1, %4) {axis=1, reduction=\"add\"} : f32[B,3]\n"
        "Div(%5, %6) : f32[B,3]\n");
  CHECK(reports(mean->notes, Code::kLostByExport, "mean"));
  // Sum and count begin at zero where something is added.
  const std::string others = "aten.scatter_reduce.two](args = (%x, 1, %i, %u, mean), kwargs = {include_self: False}";
  CHECK(nodes_of(import_exported(kScatter, others)) ==
        "Full() {shape=dims[B,3], to=\"f32\", value=1.0} : f32[B,3]\n"
        "Full() {shape=dims[B,4], to=\"f32\", value=1.0} : f32[B,4]\n"
        "Full() {shape=dims[B,4], to=\"f32\", value=0.0} : f32[B,4]\n"
        "ScatterElements(%0, %1, %5) {axis=1} : f32[B,3]\n"
        "ScatterElements(%3, %1, %5) {axis=1} : f32[B,3]\n"
        "ScatterElements(%6, %1, %2) {axis=1, reduction=\"add\"} : f32[B,3]\n"
        "ScatterElements(%7, %1, %4) {axis=1, reduction=\"add\"} : f32[B,3]\n"
        "Div(%8, %9) : f32[B,3]\n");
  const std::string plain = "ScatterElements(%0, %1, %2) {axis=1} : f32[B,3]\n";
  CHECK(nodes_of(import_text(kScatter)) == plain);
  CHECK(nodes_of(import_exported(kScatter, "aten.scatter_reduce.two](args = (%x, 1, %i, %u, sum)")) == plain);
}

TEST_CASE("what a node was exported from survives the conversion of its opset") {
  const std::string older = "<ir_version: 8, opset_import: [\"\" : 13]>\n";
  const auto padded = import_exported(older + kLookUp, "aten.embedding.default](args = (%p_w, %ids, 2)");
  CHECK(nodes_of(padded) == "Gather(%w1, %0) {axis=0, from_first_row=1, padding_row=2} : f32[B,5,2]\n");
}
