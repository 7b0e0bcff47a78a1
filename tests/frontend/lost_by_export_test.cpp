// What exporters lose of a module's parameters, and what is refused for it.

#include "frontend/lost_by_export.h"

#include <algorithm>

#include "tests/support/weighted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {
namespace pb = graphpipe_onnx;
}  // namespace

TEST_CASE(
    "weights and biases of normalisations that are folded into constants are refused, unless the user accepts it") {
  const auto model = [](const std::string& missing, int folded, bool shifts_first = false) {
    pb::ModelProto built = model_with(
        text("g (float[N,4] x, float[4,4] w, float[4] val_1, float", folded == 2 ? "[4]" : "",
             " val_2) => (float[N,4] y) { a = MatMul(x, w) ",
             shifts_first ? "b = Add(a, val_2) y = Mul(b, val_1) }" : "b = Mul(a, val_1) y = Add(b, val_2) }"),
        {{"w", {4, 4}}, {"val_1", {4}}, {"val_2", folded == 2 ? std::vector<int64_t>{4} : std::vector<int64_t>{}}});
    built.set_producer_name("pytorch");
    pb::StringStringEntryProto& entry = *built.mutable_graph()->add_metadata_props();
    entry.set_key("pkg.torch.export.ExportedProgram.graph_signature");
    entry.set_value("w: PARAMETER target='w'\n" + missing);
    return built.SerializeAsString();
  };
  const std::string norm = "a: PARAMETER target='norm.weight'\nb: PARAMETER target='norm.bias'\n";
  ImportRequest request;
  request.spec.loss.kind = "mse";
  const auto refused = import_bytes(model(norm, 2), request);
  REQUIRE_FALSE(refused.ok());
  CHECK(reports(refused.problems(), Code::kLostByExport, "normalisations"));
  // A tied name, layers that are not used and numbers of the code are no normalisation, and constants alone no loss.
  CHECK(import_bytes(model("h: PARAMETER target='head.weight'\n", 2), request).ok());
  CHECK(import_bytes(model("h: PARAMETER target='head.weight'\ng: PARAMETER target='tail.weight'\n", 2), request).ok());
  CHECK(import_bytes(model(norm, 1), request).ok());
  const auto unsure = import_bytes(model(norm, 2, true), request);
  REQUIRE(unsure.ok());
  CHECK(reports(unsure->notes, Code::kLostByExport, "may have folded"));
  const auto whole = import_bytes(model("", 2), request);
  REQUIRE(whole.ok());
  CHECK_FALSE(reports(whole->notes, Code::kLostByExport, "normalisations"));
  request.spec.accepts_losses = true;
  const auto accepted = import_bytes(model(norm, 2), request);
  REQUIRE(accepted.ok());
  CHECK(reports(accepted->notes, Code::kLostByExport, "normalisations"));
}

TEST_CASE("a tied table that an optimiser has copied and transposed is refused, unless the user accepts it") {
  constexpr int64_t kRows = 9, kColumns = 4;
  // The element of the head that differs from the table's, or none; the values repeat after so many.
  const auto model = [](int64_t other, int64_t different, bool looks_up = true) {
    pb::ModelProto built = model_with(
        looks_up ? "g (int64[N] ids, float[9,4] table, float[4,9] val_7) => (float[N,9] y) { a = Gather(table, ids) "
                   "y = MatMul(a, val_7) }"
                 : "g (float[N,9] x, float[9,4] table, float[4,9] val_7) => (float[N,9] y) { a = MatMul(x, table) "
                   "y = MatMul(a, val_7) }",
        {{"table", {kRows, kColumns}}, {"val_7", {kColumns, kRows}}});
    pb::TensorProto *table = nullptr, *head = nullptr;
    for (pb::TensorProto& tensor : *built.mutable_graph()->mutable_initializer())
      (tensor.name() == "table" ? table : head) = &tensor;
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
      const auto value = static_cast<float>(i % different);
      const int64_t turned = i % kColumns * kRows + i / kColumns;
      table->set_float_data(static_cast<int>(i), value);
      head->set_float_data(static_cast<int>(turned), turned == other ? value + 1 : value);
    }
    built.set_producer_name("pytorch");
    return built.SerializeAsString();
  };
  ImportRequest request;
  request.spec.loss.kind = "mse";
  const auto refused = import_bytes(model(-1, 36), request);
  REQUIRE_FALSE(refused.ok());
  CHECK(reports(refused.problems(), Code::kLostByExport, "transposed values of 'table'"));
  CHECK(import_bytes(model(20, 36), request).ok());
  CHECK(import_bytes(model(-1, 2), request).ok());          // as fresh constants are
  CHECK(import_bytes(model(-1, 36, false), request).ok());  // no table: layers that began alike
  request.spec.accepts_losses = true;
  const auto accepted = import_bytes(model(-1, 36), request);
  REQUIRE(accepted.ok());
  CHECK(reports(accepted->notes, Code::kLostByExport, "transposed values of 'table'"));
}

TEST_CASE("parameters that an optimiser has merged or removed, since they began alike, are refused") {
  // Two layers with a norm each and a product, as the exporter's calls say; `scale` and `bias` are those of the second.
  const auto imported_with = [](const std::string& scale, const std::string& weight, const std::string& bias,
                                bool accepts, const std::string& rules = "", bool takes_bias = true) {
    pb::ModelProto model =
        model_with(text("g (float[N,4] x, float[4] n0, float[4] n1, float[4,4] val_7, float[4,4] val_8, float[4] b0, "
                        "float[4] b1) => (float[N,4] y) {",
                        " a = LayerNormalization(x, n0) b = Gemm(a, val_7, b0) c = LayerNormalization(b, ", scale,
                        ") y = Gemm(c, ", weight, bias.empty() ? "" : ", " + bias, ") }"),
                   {{"n0", {4}}, {"n1", {4}}, {"val_7", {4, 4}}, {"val_8", {4, 4}}, {"b0", {4}}, {"b1", {4}}});
    const char* const kCalls[] = {
        "%n : [num_users=1] = call_function[target=torch.ops.aten.layer_norm.default](args = (%x, [4], %p_n0), kwargs "
        "= {})",
        "%l : [num_users=1] = call_function[target=torch.ops.aten.linear.default](args = (%n, %p_w0, %p_b0), kwargs = "
        "{})",
        "%n_1 : [num_users=1] = call_function[target=torch.ops.aten.layer_norm.default](args = (%l, [4], %p_n1), "
        "kwargs = {})",
        takes_bias ? "%a : [num_users=1] = call_function[target=torch.ops.aten.addmm.default](args = (%p_b1, %n_1, "
                     "%p_w1), kwargs = {})"
                   : "%a : [num_users=1] = call_function[target=torch.ops.aten.linear.default](args = (%n_1, %p_w1), "
                     "kwargs = {})"};
    for (int i = 0; i < 4; ++i) {
      auto& call = *model.mutable_graph()->mutable_node(i)->add_metadata_props();
      call.set_key("pkg.torch.onnx.fx_node");
      call.set_value(kCalls[i]);
    }
    auto& entry = *model.mutable_graph()->add_metadata_props();
    entry.set_key("pkg.torch.export.ExportedProgram.graph_signature");
    for (const char* name : {"n0", "n1", "w0", "w1", "b0", "b1"})
      entry.set_value(text(entry.value(), "p_", name, ": PARAMETER target='", name, "'\n"));
    // What nothing reads the optimiser leaves out.
    const auto is_read = [&](const std::string& name) {
      return std::ranges::any_of(model.graph().node(), [&](const pb::NodeProto& node) {
        return std::ranges::find(node.input(), name) != node.input().end();
      });
    };
    for (int i = model.graph().initializer_size() - 1; i >= 0; --i)
      if (!is_read(model.graph().initializer(i).name()))
        model.mutable_graph()->mutable_initializer()->DeleteSubrange(i, 1);
    while (model.graph().input_size() > 1) model.mutable_graph()->mutable_input()->RemoveLast();
    model.set_producer_name("pytorch");
    ImportRequest request;
    request.spec.loss.kind = "mse";
    request.spec.accepts_losses = accepts;
    request.spec.parameter_rules = ModelText(rules);
    return import_bytes(model.SerializeAsString(), request);
  };
  CHECK(imported_with("n1", "val_8", "b1", false).ok());  // names are lost, but every parameter has a tensor
  // A bias that the module adds itself, and the optimiser has joined with the product before it.
  CHECK(imported_with("n1", "val_8", "b1", false, "", /*takes_bias=*/false).ok());
  const auto refused = [&](const std::string& scale, const std::string& weight, const std::string& bias,
                           const char* name) {
    const auto imported = imported_with(scale, weight, bias, false);
    CHECK_FALSE(imported.ok());
    CHECK(reports(imported.problems(), Code::kLostByExport, text("'", name, "': this parameter")));
    const auto accepted = imported_with(scale, weight, bias, true);
    REQUIRE(accepted.ok());
    CHECK(reports(accepted->notes, Code::kLostByExport, text("'", name, "': this parameter")));
  };
  refused("n0", "val_8", "b1", "n1");
  refused("n1", "val_8", "", "b1");
  refused("n1", "val_8", "b0", "b1");
  const auto two = imported_with("n1", "val_7", "b1", false);  // of both products, since their weights began alike
  REQUIRE_FALSE(two.ok());
  CHECK(reports(two.problems(), Code::kLostByExport, "2 parameters of the module"));
  CHECK(imported_with("n0", "val_8", "b1", false, "n1 tie n0\n").ok());
}

TEST_CASE(
    "what an optimiser has computed beforehand may be read by several products, and a bias may be all that is lost") {
  const auto imported_of = [](const std::string& body, const std::map<std::string, std::string>& calls,
                              const std::vector<std::string>& parameters) {
    pb::ModelProto model = model_with(body, {{"val_5", {4, 4}}, {"val_7", {4, 4}}, {"val_8", {4, 4}}});
    for (pb::NodeProto& node : *model.mutable_graph()->mutable_node())
      if (const auto call = calls.find(node.output(0)); call != calls.end()) {
        auto& said = *node.add_metadata_props();
        said.set_key("pkg.torch.onnx.fx_node");
        said.set_value(text("%", call->first, " : [num_users=1] = call_function[target=torch.ops.aten.", call->second));
      }
    auto& entry = *model.mutable_graph()->add_metadata_props();
    entry.set_key("pkg.torch.export.ExportedProgram.graph_signature");
    for (const std::string& name : parameters)
      entry.set_value(text(entry.value(), "p_", name, ": PARAMETER target='", name, "'\n"));
    while (model.graph().input_size() > 1) model.mutable_graph()->mutable_input()->RemoveLast();
    model.set_producer_name("pytorch");
    ImportRequest request;
    request.spec.loss.kind = "mse";
    return import_bytes(model.SerializeAsString(), request);
  };
  const std::string head =
      "g (float[N,4] x, float[4,4] val_5, float[4,4] val_7, float[4,4] val_8) => (float[N,4] y) { ";
  // Positions, which are no parameter, with two transposed weights of their own.
  CHECK(imported_of(head + "q = MatMul(val_5, val_7) k = MatMul(val_5, val_8) a = MatMul(x, q) y = MatMul(a, k) }",
                    {{"q", "linear.default](args = (%positions, %p_q), kwargs = {})"},
                     {"k", "linear.default](args = (%positions, %p_k), kwargs = {})"}},
                    {"q", "k"})
            .ok());
  // The weight comes through a call of its own, so that the product's call takes the bias alone.
  const auto without_bias =
      imported_of(head + "a = Gemm(x, val_7) b = MatMul(a, val_5) y = MatMul(b, val_8) }",
                  {{"a", "addmm.default](args = (%p_bias, %x, %permute), kwargs = {})"}}, {"bias"});
  REQUIRE_FALSE(without_bias.ok());
  CHECK(reports(without_bias.problems(), Code::kLostByExport, "'bias': this parameter"));
}

TEST_CASE("transposed weights that TorchScript has merged, since they had equal values, are refused") {
  const auto imported_with = [](const std::string& copy, bool accepts) {
    pb::ModelProto model = model_with(
        "g (float[N,4] x, float[4,4] w) => (float[N,4] y) { a = MatMul(x, w) b = Relu(a) c = Identity(w) y = MatMul(b, "
        "c) }",
        {{"w", {4, 4}}});
    const auto rename = [&](const std::string& from, const std::string& to) {
      for (pb::NodeProto& node : *model.mutable_graph()->mutable_node()) {
        std::ranges::replace(*node.mutable_input(), from, to);
        std::ranges::replace(*node.mutable_output(), from, to);
      }
    };
    rename("w", "onnx::MatMul_9");
    rename("c", copy);
    model.mutable_graph()->mutable_initializer(0)->set_name("onnx::MatMul_9");
    while (model.graph().input_size() > 1) model.mutable_graph()->mutable_input()->RemoveLast();
    model.set_producer_name("pytorch");
    ImportRequest request;
    request.spec.loss.kind = "mse";
    request.spec.accepts_losses = accepts;
    return import_bytes(model.SerializeAsString(), request);
  };
  const auto refused = imported_with("onnx::MatMul_12", false);
  REQUIRE_FALSE(refused.ok());
  CHECK(reports(refused.problems(), Code::kLostByExport, "whether the module ties them or not"));
  CHECK(imported_with("onnx::MatMul_12", true).ok());
  CHECK(imported_with("/layer/Identity_output_0", false).ok());  // a copy that the module makes
}

TEST_CASE("what the signature promises and the file lacks is reported") {
  pb::ModelProto model =
      model_with("g (float[N,4] x, float[4,4] val_7) => (float[N,4] y) { y = MatMul(x, val_7) }", {{"val_7", {4, 4}}});
  model.set_producer_name("pytorch");
  auto& entry = *model.mutable_graph()->add_metadata_props();
  entry.set_key("pkg.torch.export.ExportedProgram.graph_signature");
  entry.set_value("p: PARAMETER target='fc.weight'\nb: BUFFER target='bn.running_var' persistent=True\n");
  const auto imported = import_bytes(model.SerializeAsString());
  CHECK(decisions_of(imported).at("val_7").trainable);
  CHECK(reports(imported->notes, Code::kLostByExport, "'val_7'"));
  CHECK(reports(imported->notes, Code::kLostByExport, "'fc.weight'"));
  CHECK(reports(imported->notes, Code::kLostByExport, "'bn.running_var'"));
  // A module that ties it has said where it is; the tied name may stand in the file or not.
  ImportRequest request;
  request.spec.parameter_rules = ModelText("fc.weight tie\nval_7 tie\nhead.weight tie\n");
  const auto tied = import_bytes(model.SerializeAsString(), request);
  REQUIRE(tied.ok());
  CHECK_FALSE(reports(tied->notes, Code::kLostByExport, "'fc.weight'"));
  request = {};
  // To train the file without its BatchNormalization is a decision of the user's.
  request.spec.loss.kind = "mse";
  const auto trained = import_bytes(model.SerializeAsString(), request);
  REQUIRE(!trained.ok());
  CHECK(reports(trained.problems(), Code::kLostByExport, "--accept"));
  request.spec.accepts_losses = true;
  CHECK(import_bytes(model.SerializeAsString(), request).ok());
}
