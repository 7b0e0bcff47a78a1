// What exporters lose of a module's parameters, and what is refused for it.

#include "frontend/lost_by_export.h"

#include <algorithm>

#include "tests/support/noted_models.h"

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

TEST_CASE("parameters that an optimiser has merged, of calls that restore_parameters() does not know, are refused") {
  const auto imported_with = [](const std::string& scale, const std::string& weight, bool accepts,
                                const std::string& rules = "") {
    ImportRequest request;
    request.spec.loss.kind = "mse";
    request.spec.accepts_losses = accepts;
    request.spec.parameter_rules = ModelText(rules);
    return import_bytes(
        exported_model(
            text("g (float[N,4] x, float[4] n0, float[4] c0, float[4] n1, float[4,4] val_7, float[4,4] val_8) "
                 "=> (float[N,4] y) { a = LayerNormalization(x, n0, c0) b = MatMul(a, val_7) c = "
                 "LayerNormalization(b, ",
                 scale, ", c0) y = MatMul(c, ", weight, ") }"),
            {{"a", "own_norm.default](args = (%x, %p_n0, %p_c0), kwargs = {})"},
             {"b", "own_product.default](args = (%a, %p_w0), kwargs = {})"},
             {"c", "own_norm.default](args = (%b, %p_n1, %p_c0), kwargs = {})"},
             {"y", "own_product.default](args = (%c, %p_w1), kwargs = {})"}},
            {"n0", "c0", "n1", "w0", "w1"}),
        request);
  };
  CHECK(imported_with("n1", "val_8", false).ok());  // names are lost, but what is read is the calls' own
  const auto refused = imported_with("n0", "val_8", false);
  REQUIRE_FALSE(refused.ok());
  CHECK(reports(refused.problems(), Code::kLostByExport, "'n1': this parameter"));
  const auto accepted = imported_with("n0", "val_8", true);
  REQUIRE(accepted.ok());
  CHECK(reports(accepted->notes, Code::kLostByExport, "'n1': this parameter"));
  CHECK(imported_with("n0", "val_8", false, "n1 tie n0\n").ok());
  const auto products = imported_with("n1", "val_7", false);  // of both, since their weights began alike
  REQUIRE_FALSE(products.ok());
  CHECK(reports(products.problems(), Code::kLostByExport, "2 parameters of the module"));
}

TEST_CASE("what an optimiser has computed beforehand may be read by several products") {
  // Positions, which are no parameter, with two transposed weights of their own.
  const auto imported = import_bytes(
      exported_model("g (float[N,4] x, float[4,4] val_5, float[4,4] val_7, float[4,4] val_8) => (float[N,4] y) { q = "
                     "MatMul(val_5, val_7) k = MatMul(val_5, val_8) a = MatMul(x, q) y = MatMul(a, k) }",
                     {{"q", "linear.default](args = (%positions, %p_wq), kwargs = {})"},
                      {"k", "linear.default](args = (%positions, %p_wk), kwargs = {})"}},
                     {"wq", "wk"}));
  REQUIRE(imported.ok());
  CHECK(
      reports(imported->notes, Code::kLostByExport, "'wq': 2 tensors of the module, this one first, are there again"));
}

TEST_CASE("a number that a module passes on to another is refused where the product with it is left out") {
  const auto imported_with = [](const std::string& caller, const std::string& rules = "") {
    return import_noted(
        exported_model("g (float[N,4] x, float[4,4] w) => (float[N,4] y) { linear = MatMul(x, w) y = "
                       "Tanh(linear) }",
                       {{"linear", taken_by("mm.default", "%x, %p_w")}, {"y", taken_by("tanh.default", "%mul,")}},
                       {"w", "g"}),
        {{},
         {},
         {{"linear", {"block.fc", "\"m.py\", line 2, in forward\n    return x @ self.weight"}},
          {"y",
           {"block", text("\"m.py\", line 4, in forward\n    y = ", caller,
                          "\nFile \"m.py\", line 8, in forward\n    return (self.fc(x) * g).tanh()")}}}},
        rules);
  };
  const auto refused = imported_with("self.block(x, self.g)");
  REQUIRE_FALSE(refused.ok());
  CHECK(reports(refused.problems(), Code::kLostByExport, "left out the call that computes 'mul'"));
  CHECK(refused.problems().front().hint.find("--freeze 'g'") != std::string::npos);
  CHECK(imported_with("self.block(x, self.g)", "g freeze\n").ok());
  CHECK(imported_with("self.block(x, self.h)").ok());
}

TEST_CASE("what is refused for a weight that was computed beforehand is told once, with the line that reads it") {
  const auto imported = import_noted(
      exported_model("g (float[N,4] x, float[4,4] mul) => (float[N,4] y) { y = MatMul(x, mul) }",
                     {{"y", taken_by("mm.default", "%x, %mul")}}, {"v", "g"}),
      {{{"mul", "['div', 'g', 'v']"}}, {}, {{"y", {"fc", "\"m.py\", line 2, in forward\n    return x @ weight"}}}});
  REQUIRE_FALSE(imported.ok());
  CHECK(imported.problems().size() == 1);
  CHECK(reports(imported.problems(), Code::kLostByExport,
                "has computed 'mul' beforehand, which 'return x @ weight' of 'fc' reads"));
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

TEST_CASE("a file whose norms were folded away is refused for that alone") {
  const auto refused = import_noted(
      exported_model("g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }", {{"y", taken_by("relu.default", "%conv2d")}},
                     {"conv.bias", "buffer bn.running_mean"}),
      {});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.problems().size() == 1);
  CHECK(reports(refused.problems(), Code::kLostByExport, "running statistics"));
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
  // A module that does not use the layer has lost nothing.
  request.spec.accepts_losses = false;
  request.spec.parameter_rules = ModelText("fc.weight unused\nbn.* unused\n");
  const auto unused = import_bytes(model.SerializeAsString(), request);
  REQUIRE(unused.ok());
  CHECK_FALSE(reports(unused->notes, Code::kLostByExport, "'fc.weight'"));
  CHECK_FALSE(reports(unused->notes, Code::kLostByExport, "'bn.running_var'"));
}
