// Parameters get the tensors back that an exporter's optimiser took from them.

#include "frontend/restore_parameters.h"

#include <algorithm>
#include <set>

#include "frontend/exported_call.h"
#include "tests/support/count_ops.h"
#include "tests/support/exported_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

constexpr const char* kEnd = "), kwargs = {})";

std::string call(const std::string& target, const std::string& arguments) {
  return text(target, "](args = (", arguments, kEnd);
}

Result<Imported> import_trained(const std::string& model, const std::string& rules = "") {
  ImportRequest request;
  request.spec.loss.kind = "mse";
  request.spec.parameter_rules = ModelText(rules);
  return import_bytes(model, request);
}

std::set<std::string> trained_names(const Result<Imported>& imported) {
  std::set<std::string> names;
  for (const auto& [name, decision] : decisions_of(imported))
    if (decision.trainable) names.insert(name);
  return names;
}

const ir::Param& param_of(const ir::Graph& graph, const std::string& name) {
  for (const ir::ParamId id : graph.param_ids())
    if (graph.param(id).name.raw() == name) return graph.param(id);
  FAIL("no parameter " << name);
  return graph.param(ir::ParamId(0));
}

std::string shape_of(const ir::Graph& graph, const std::string& name) {
  std::string dims;
  for (const ir::Dim dim : graph.value(param_of(graph, name).value).type.shape) dims += text(dim.factor, " ");
  return dims;
}

/// Two norms and two products, of which the second may read the tensors of the first.
Result<Imported> two_layers(const std::string& scale, const std::string& weight, const std::string& bias,
                            const std::string& rules = "") {
  return import_trained(
      exported_model(
          text("g (float[N,4] x, float[4] n0, float[4] n1, float[4,4] val_7, float[4,4] val_8, float[4] b0, "
               "float[4] c_bias) => (float[N,4] y) { a = LayerNormalization(x, n0) b = Gemm(a, val_7, b0) c = "
               "LayerNormalization(b, ",
               scale, ") y = Gemm(c, ", weight, bias.empty() ? "" : ", " + bias, ") }"),
          {{"a", call("layer_norm.default", "%x, [4], %p_n0")},
           {"b", call("linear.default", "%a, %p_w0, %p_b0")},
           {"c", call("layer_norm.default", "%b, [4], %p_n1")},
           {"y", call("addmm.default", "%p_c_bias, %c, %p_w1")}},
          {"n0", "n1", "w0", "w1", "b0", "c_bias"}),
      rules);
}

}  // namespace

TEST_CASE("parameters that are merged, transposed or left out train under their names") {
  const std::set<std::string> all = {"n0", "n1", "w0", "w1", "b0", "c_bias"};
  // addmm multiplies by its argument as it is, so that a tensor without a name may be anything, and stays one.
  const std::set<std::string> but_one = {"n0", "n1", "w0", "val_8", "b0", "c_bias"};
  CHECK(trained_names(two_layers("n1", "val_8", "c_bias")) == but_one);
  CHECK(trained_names(two_layers("n0", "val_8", "c_bias")) == but_one);
  CHECK(trained_names(two_layers("n0", "val_8", "b0")) == but_one);
  CHECK(trained_names(two_layers("n0", "val_8", "")) == but_one);
  const auto noted = two_layers("n0", "val_8", "");
  CHECK(reports(noted->notes, Code::kLostByExport, "3 tensors of the module, this one first, are there again"));
  CHECK_FALSE(reports(two_layers("n0", "val_8", "c_bias", "n1 tie n0\n")->notes, Code::kLostByExport, "'n1'"));
  CHECK(trained_names(two_layers("n0", "val_8", "c_bias", "n1 tie n0\n")).count("n1") == 0);
}

TEST_CASE("a linear layer's weight is the transpose of what a product reads, and a table's copy is the table") {
  graphpipe_onnx::ModelProto model;
  REQUIRE(
      model.ParseFromString(exported_model("g (int64[N] ids, float[5,3] table, float[3,2] val_7, float[3,5] val_8, "
                                           "float[3,3] val_9) => (float[N,5] y) { a = "
                                           "Gather(table, ids) s = MatMul(a, val_9) b = MatMul(s, val_7) z = MatMul(s, "
                                           "val_8) u = ReduceSum(b) y = Add(z, u) }",
                                           {{"a", call("embedding.default", "%p_table, %ids")},
                                            {"s", call("linear.default", "%a, %p_same")},
                                            {"b", call("linear.default", "%s, %p_w")},
                                            {"z", call("linear.default", "%s, %p_table")}},
                                           {"table", "w", "same"})));
  for (graphpipe_onnx::TensorProto& tensor : *model.mutable_graph()->mutable_initializer())
    for (int i = 0; i < tensor.float_data_size(); ++i)
      tensor.set_float_data(i, static_cast<float>(tensor.name() == "val_8" ? i % 5 * 3 + i / 5 : i));
  const auto imported = import_trained(model.SerializeAsString());
  CHECK(trained_names(imported) == std::set<std::string>{"table", "w", "same"});
  CHECK(shape_of(imported->graph, "w") == "2 3 ");
  CHECK(shape_of(imported->graph, "table") == "5 3 ");
  CHECK(count_ops(imported->graph, "Transpose") == 3);
  const std::string& bytes = std::get<ir::InlineData>(param_of(imported->graph, "w").data).bytes;
  const std::vector<float> turned = {0, 2, 4, 1, 3, 5};
  CHECK((bytes == std::string(reinterpret_cast<const char*>(turned.data()), turned.size() * sizeof(float))));
  // A file that was trained with the two apart keeps both.
  for (graphpipe_onnx::TensorProto& tensor : *model.mutable_graph()->mutable_initializer())
    if (tensor.name() == "val_8") tensor.set_float_data(4, 99);
  CHECK(trained_names(import_trained(model.SerializeAsString())) ==
        std::set<std::string>{"table", "w", "same", "val_8"});
}

TEST_CASE("norms of groups get their vectors back, statistics theirs, and convolutions their biases") {
  const auto whole = import_trained(
      exported_model("g (float[N,2,4,4] x, float[6,2,1,1] w, float[6,1,1] val_3, float[6] s) => (float[N,6,4,4] d) { a "
                     "= Conv(x, w) b = "
                     "Mul(a, val_3) c = Add(b, val_3) d = BatchNormalization(c, s, s, s, s) }",
                     {{"a", call("conv2d.default", "%x, %p_w, %p_bias")},
                      {"b", call("group_norm.default", "%a, 2, %p_scale, %p_shift")},
                      {"c", call("group_norm.default", "%a, 2, %p_scale, %p_shift")},
                      {"d", call("_native_batch_norm_legit_no_training.default", "%c, %p_s, %p_t, %b_mean, %b_var")}},
                     {"w", "bias", "scale", "shift", "s", "t", "buffer mean", "buffer var"}));
  CHECK(trained_names(whole) == std::set<std::string>{"w", "bias", "scale", "shift", "s", "t"});
  for (const char* vector : {"scale", "shift", "bias", "t", "mean", "var"})
    CHECK(shape_of(whole->graph, vector) == "6 ");
  CHECK(std::get<ir::FilledData>(param_of(whole->graph, "bias").data).value == 0);
  CHECK(param_of(whole->graph, "mean").kind == ir::ParamKind::kBuffer);
}

TEST_CASE("instance norms that began alike have their own weights and biases") {
  const auto norm = [](const std::string& of, const std::string& number) {
    return call("instance_norm.default", "%" + of + ", %p_w" + number + ", %p_b" + number + ", None, None, True, 0.1");
  };
  const auto imported = import_trained(exported_model(
      "g (float[N,4,6] x, float[4] w1, float[4] b1) => (float[N,4,6] b) { a = "
      "InstanceNormalization(x, w1, b1) r = Relu(a) b = InstanceNormalization(r, w1, b1) }",
      {{"a", norm("x", "1")}, {"r", call("relu.default", "%a")}, {"b", norm("r", "2")}}, {"w1", "b1", "w2", "b2"}));
  CHECK(trained_names(imported) == std::set<std::string>{"w1", "b1", "w2", "b2"});
}

TEST_CASE("what a restored tensor is read through comes before all that read it, also where a call has later nodes") {
  const std::string norm = call("group_norm.default", "%x, 2, %p_scale, %p_shift");
  const std::string early = "early|" + norm, late = "late|" + norm;
  const auto imported = import_trained(
      exported_model("g (float[N,6,2,2] x, float[6,1,1] val_3) => (float[N,6,2,2] e) { a = Relu(x) b = Mul(a, val_3) c "
                     "= Add(b, val_3) "
                     "d = Mul(c, val_3) e = Add(d, val_3) }",
                     {{"a", early}, {"b", late}, {"c", late}, {"d", early}, {"e", early}}, {"scale", "shift"}));
  REQUIRE(imported.ok());
  CHECK(trained_names(imported) == std::set<std::string>{"scale", "shift"});
  CHECK(shape_of(imported->graph, "scale") == "6 ");
}

TEST_CASE("a call with one parameter reads that one; where a product's weight is computed, its bias stays lost") {
  const auto scaled_with = [](const std::string& product) {
    return import_trained(exported_model(text("g (float[N,4] x, float[4] g, float[4,4] k) => (float[N,4] y) { m = "
                                              "Exp(k) a = Mul(x, g) b = Mul(a, g) c = ",
                                              product, " y = Relu(c) }"),
                                         {{"a", call("mul.Tensor", "%x, %p_g")},
                                          {"b", call("mul.Tensor", "%a, %p_h")},
                                          {"c", call("linear.default", "%b, %exp, %p_bias")}},
                                         {"g", "h", "k", "bias"}));
  };
  CHECK(trained_names(scaled_with("MatMul(b, k)")) == std::set<std::string>{"g", "h", "k", "bias"});
  const auto computed = scaled_with("MatMul(b, m)");
  REQUIRE_FALSE(computed.ok());
  CHECK(reports(computed.problems(), Code::kLostByExport, "'bias': this parameter"));
}

TEST_CASE(
    "parameters that no node takes: ties and look-ups explain some, what shows an optimiser's work refuses others") {
  const auto model_of = [](const std::string& norm, const std::vector<std::string>& parameters,
                           const std::string& positions = "p0") {
    return import_trained(exported_model(
        text("g (int64[N] ids, float[5,3] table, float[3] ", positions,
             ", float[1] exp, float[3,5] val_8) => (float[N,5] y) "
             "{ a = Gather(table, ids) c = Add(a, ",
             positions, ") s = Mul(c, exp) z = MatMul(s, val_8) y = Relu(z) }"),
        {{"a", call("embedding.default", "%p_table, %ids")}, {"z", call("linear.default", norm + ", %p_table")}},
        parameters));
  };
  // The head's other name; the file without a trace of an optimiser says no more.
  const auto tied = model_of("%s", {"table", "p0", "buffer exp", "head.table"});
  REQUIRE(tied.ok());
  CHECK(reports(tied->notes, Code::kLostByExport, "tied to another"));
  const auto unused = model_of("%s", {"table", "p0", "buffer exp", "pooler.weight", "pooler.bias"});
  REQUIRE(unused.ok());
  CHECK(
      reports(unused->notes, Code::kLostByExport, "2 parameters of the module, this one first, are taken by no node"));
  const auto folded = model_of("%s", {"table", "p0", "logit_scale"});
  REQUIRE_FALSE(folded.ok());
  CHECK(reports(folded.problems(), Code::kLostByExport, "'logit_scale': this parameter"));
  CHECK(reports(folded.problems(), Code::kLostByExport, "computed 'exp' beforehand"));
  const auto merged = model_of("%layer_norm_1", {"table", "p0", "buffer exp", "n2.weight", "n2.bias"});
  REQUIRE_FALSE(merged.ok());
  CHECK(reports(merged.problems(), Code::kLostByExport, "merged the layer of 'layer_norm_1'"));
}

TEST_CASE("rows of a table that were looked up beforehand train") {
  const auto imported = import_trained(exported_model(
      "g (int64[N] ids, float[5,3] table, float[1,3] embedding_1, float[3,5] val_8) => (float[N,5] y) { a = "
      "Gather(table, ids) "
      "c = Add(a, embedding_1) y = MatMul(c, val_8) }",
      {{"a", call("embedding.default", "%p_table, %ids")}, {"y", call("linear.default", "%c, %p_head.weight")}},
      {"table", "head.weight", "positions.weight"}));
  CHECK(trained_names(imported) == std::set<std::string>{"table", "head.weight", "embedding_1"});
  CHECK_FALSE(reports(imported->notes, Code::kLostByExport, "taken by no node"));
  CHECK(reports(imported->notes, Code::kLostByExport, "no state_dict of the module has: 'embedding_1'"));
}

TEST_CASE("layers of one input that began alike and were merged are refused, whatever reads their results") {
  const auto refused_for = [](const std::string& model, const std::string& parameter, const std::string& value) {
    const auto refused = import_trained(model);
    CAPTURE(parameter);
    REQUIRE_FALSE(refused.ok());
    CHECK(reports(refused.problems(), Code::kLostByExport, text("'", parameter, "'")));
    CHECK(reports(refused.problems(), Code::kLostByExport, text("merged the layer of '", value, "'")));
  };
  const std::string norm = call("layer_norm.default", "%x, [4], %p_n1");
  // Nothing else shows that the file is optimised.
  refused_for(
      exported_model("g (float[N,4] x, float[4] n1, float[4,4] w1, float[4,4] w2) => (float[N,4] y) { layer_norm "
                     "= LayerNormalization(x, n1) a = Gemm(layer_norm, w1) b = Gemm(layer_norm, w2) y = Add(a, b) }",
                     {{"layer_norm", norm},
                      {"a", call("addmm.default", "%c, %layer_norm, %p_w1")},
                      {"b", call("addmm.default", "%c, %layer_norm_1, %p_w2")}},
                     {"n1", "n2.weight", "w1", "w2"}),
      "n2.weight", "layer_norm_1");
  refused_for(exported_model("g (float[N,4] x, float[4] n1) => (float[N,4] y) { layer_norm = LayerNormalization(x, "
                             "n1) a = Relu(layer_norm) b = Tanh(layer_norm) y = Add(a, b) }",
                             {{"layer_norm", norm},
                              {"a", call("relu.default", "%layer_norm")},
                              {"b", call("tanh.default", "%layer_norm_1")}},
                             {"n1", "n2.weight"}),
              "n2.weight", "layer_norm_1");
  // Two heads with one product and a bias each.
  const std::string first = "linear|" + call("linear.default", "%x, %p_h1, %p_b1");
  refused_for(
      exported_model("g (float[N,4] x, float[4,4] val_7, float[4] b1, float[4] b2) => (float[N,4] y) { m = "
                     "MatMul(x, val_7) linear = Add(m, b1) linear_1 = Add(m, b2) y = Add(linear, linear_1) }",
                     {{"m", first}, {"linear", first}, {"linear_1", call("linear.default", "%x, %p_h2.weight, %p_b2")}},
                     {"h1", "h2.weight", "b1", "b2"}),
      "h2.weight", "linear_1");
  refused_for(exported_model(
                  "g (float[N,4] x, float[4] g1) => (float[N,4] y) { mul = Mul(x, g1) a = Relu(mul) y = Add(a, mul) }",
                  {{"mul", call("mul.Tensor", "%x, %p_g1")},
                   {"a", call("relu.default", "%mul")},
                   {"y", call("add.Tensor", "%a, %mul_1")}},
                  {"g1", "g2"}),
              "g2", "mul_1");
  // A view of one parameter, and another with the same shape and elements.
  refused_for(exported_model("g (float[N,4,2] x, float[4,1] w1) => (float[N,4,2] y) { a = Mul(x, w1) y = Mul(a, w1) }",
                             {{"a", call("mul.Tensor", "%x, %p_w1")}, {"y", call("mul.Tensor", "%a, %unsqueeze")}},
                             {"w1", "w2"}),
              "w2", "unsqueeze");
  // Two tokens that began as zeros.
  refused_for(exported_model(
                  "g (float[N,1,4] x, float[4,4] val_7, float[1,1,4] cls) => (float[N,3,4] y) { m = MatMul(x, val_7) "
                  "z = Mul(x, cls) expand = Sub(z, x) y = Concat<axis = 1>(expand, expand, m) }",
                  {{"m", call("linear.default", "%x, %p_w")},
                   {"z", call("own.default", "%p_cls")},
                   {"expand", call("own.default", "%z")},
                   {"y", call("cat.default", "[%expand, %expand_1, %m], 1")}},
                  {"w", "cls", "dist"}),
              "dist", "expand_1");
}

TEST_CASE("a layer with several parameters that is applied twice to one input does not hide ties") {
  // The table is tied to the head, whose name its calls have.
  const auto applied_twice = [](const std::vector<std::string>& untold) {
    std::vector<std::string> listed = {"w", "b", "weight"};
    listed.insert(listed.end(), untold.begin(), untold.end());
    const std::string layer = "linear|" + call("linear.default", "%e, %p_w, %p_b");
    return import_trained(exported_model(
        "g (int64[N] ids, float[5,3] weight, float[3,3] val_0, float[3] b, float[3,5] val_4) => (float[N,5] y) { e = "
        "Gather(weight, ids) m = MatMul(e, val_0) linear = Add(m, b) t = Tanh(linear) s = Add(linear, t) y = MatMul(s, "
        "val_4) }",
        {{"e", call("embedding.default", "%p_weight, %ids")},
         {"m", layer},
         {"linear", layer},
         {"t", call("tanh.default", "%linear_1")},
         {"s", call("add.Tensor", "%linear, %t")},
         {"y", call("linear.default", "%s, %p_weight")}},
        listed));
  };
  CHECK(trained_names(applied_twice({"table.weight"})) == std::set<std::string>{"w", "b", "weight"});
  // That may be another layer, which began as the first.
  const auto refused = applied_twice({"table.weight", "table.bias"});
  REQUIRE_FALSE(refused.ok());
  CHECK(reports(refused.problems(), Code::kLostByExport, "merged the layer of 'linear_1'"));
}

TEST_CASE("a merged layer that may be one that began equal and is applied elsewhere as well is warned of") {
  const auto applied = [](const std::string& elsewhere) {
    return import_trained(
        exported_model("g (float[N,3] x, float[3,3] weight, float[3] bias) => (float[N,3] y) { linear = Gemm<transB = "
                       "1>(x, weight, bias) t = Tanh(linear) s = Add(linear, t) z = Sigmoid(x) linear_2 = Gemm<transB "
                       "= 1>(z, weight, bias) y = "
                       "Add(s, linear_2) }",
                       {{"linear", call("linear.default", "%x, %p_weight, %p_bias")},
                        {"t", call("tanh.default", "%linear_1")},
                        {"s", call("add.Tensor", "%linear, %t")},
                        {"z", call("sigmoid.default", "%x")},
                        {"linear_2", call("linear.default", "%z, " + elsewhere)},
                        {"y", call("add.Tensor", "%s, %linear_2")}},
                       {"weight", "bias", "other.weight", "other.bias"}));
  };
  const auto doubtful = applied("%p_other.weight, %p_other.bias");
  REQUIRE(doubtful.ok());
  CHECK(trained_names(doubtful) == std::set<std::string>{"weight", "bias", "other.weight", "other.bias"});
  CHECK(reports(doubtful->notes, Code::kLostByExport, "'linear_1': the exporter's optimiser has merged this layer"));
  CHECK(reports(doubtful->notes, Code::kLostByExport, "may be 'other'"));
}

TEST_CASE("products of values and constants that were merged hide no parameter") {
  const auto masked_by = [](const std::string& mask) {
    return import_trained(
        exported_model(text("g (float[N,4] x, float[4] ", mask,
                            ", float[4] w, float[4] val_9) => (float[N,4] y) { a = Sigmoid(x) mul = "
                            "Mul(a, ",
                            mask, ") b = Relu(mul) c = Tanh(mul) d = Mul(c, val_9) e = Add(b, d) y = Mul(e, w) }"),
                       {{"mul", call("mul.Tensor", mask == "g" ? "%a, %p_g" : "%a, 2.0")},
                        {"b", call("relu.default", "%mul")},
                        {"c", call("tanh.default", "%mul_1")},
                        {"y", call("mul.Tensor", "%e, %p_w")}},
                       {"w", "g", "unused.weight"}));
  };
  const auto imported = masked_by("val_3");
  REQUIRE(imported.ok());
  CHECK(trained_names(imported) == std::set<std::string>{"w"});
  CHECK(reports(imported->notes, Code::kLostByExport, "taken by no node"));
  CHECK_FALSE(masked_by("g").ok());
}

TEST_CASE("products and sums with elements of a parameter that were merged may hide another") {
  const auto merged = [](const std::string& kind, const std::string& elements, const std::string& taken) {
    const std::string argument = (elements == "a" ? "%p_" : "%") + elements;
    return import_trained(exported_model(
        text("g (float[N,4] x, float[4] w, float[1,4] a, float[4,4] t) => (float[N,4] y) { four = "
             "Constant<value_ints = [4]>() size = Shape<end = 1>(x) sizes = Concat<axis = 0>(size, four) "
             "i = ArgMax<axis = 1, keepdims = 0>(x) looked = Gather(t, i) wide = Expand(a, sizes) u = "
             "Add(looked, wide) ",
             kind, " = ", std::string(1, static_cast<char>(kind[0] - 'a' + 'A')) + kind.substr(1), "(", elements,
             ", x) b = Relu(", kind, ") c = Tanh(", kind, ") d = Add(b, c) e = Add(d, u) y = Mul(e, w) }"),
        {{kind, call(kind + ".Tensor", argument + ", %x")},
         {"b", call("relu.default", "%" + kind)},
         {"c", call("tanh.default", "%" + taken)},
         {"y", call("mul.Tensor", "%e, %p_w")}},
        {"w", "a", "t", "other"}));
  };
  for (const std::string kind : {"mul", "add", "sub", "div"})
    for (const std::string elements : {"looked", "wide", "a"}) {
      CAPTURE(kind);
      CAPTURE(elements);
      const auto refused = merged(kind, elements, kind + "_1"), whole = merged(kind, elements, kind);
      REQUIRE_FALSE(refused.ok());
      CHECK(reports(refused.problems(), Code::kLostByExport, text("merged the layer of '", kind, "_1'")));
      CHECK(whole.ok());
    }
}

TEST_CASE("activations of what was computed with a parameter may hide another where they were merged") {
  // `before` makes "value", whose activations two calls take.
  const auto activated = [](const std::string& before, const std::string& target, const std::string& taken) {
    return import_trained(
        exported_model(text("g (float[N,4] x, float[4] w, float[4] a, float[4] bias) => (float[N,4] y) { ", before,
                            " tanh = Tanh(value) b = Neg(tanh) c = Abs(tanh) d = Add(b, c) e = Mul(d, w) "
                            "y = Add(e, bias) }"),
                       {{"value", call(target, target == "neg.default" ? "%p" : "%x, %p_a")},
                        {"tanh", call("tanh.default", "%value")},
                        {"b", call("neg.default", "%tanh")},
                        {"c", call("abs.default", "%" + taken)},
                        {"e", call("mul.Tensor", "%d, %p_w")},
                        {"y", call("add.Tensor", "%e, %p_bias")}},
                       {"w", "a", "bias", "other"}));
  };
  const auto is_refused = [&](const std::string& before, const std::string& target) {
    CHECK(activated(before, target, "tanh").ok());
    const auto imported = activated(before, target, "tanh_1");
    if (imported.ok()) return false;
    return reports(imported.problems(), Code::kLostByExport, "merged the layer of 'tanh_1'");
  };
  CHECK(is_refused("value = LayerNormalization(x, a)", "layer_norm.default"));
  CHECK_FALSE(is_refused("p = Mul(x, a) value = Neg(p)", "neg.default"));
  // Of one linear layer, whose weight no other begins with.
  CHECK_FALSE(is_refused("value = Add(x, a)", "linear.default"));
}

TEST_CASE("a multiplication by one, which an optimiser leaves out, is no merged layer") {
  // The tied names leave one parameter that no call takes.
  const auto scaled = import_trained(
      exported_model("g (int64[N] ids, float[5,3] table, float[3] s, float[3,5] val_8) => (float[N,5] y) { a = "
                     "Gather(table, ids) b = Mul(a, s) c = Add(a, b) y = MatMul(c, val_8) }",
                     {{"a", call("embedding.default", "%p_table, %ids")},
                      {"b", call("mul.Tensor", "%mul, %p_s")},
                      {"c", call("add.Tensor", "%mul, %b")},
                      {"y", call("linear.default", "%c, %p_head.weight")}},
                     {"table", "s", "head.weight", "shared.weight", "embed.weight"}));
  REQUIRE(scaled.ok());
  CHECK(reports(scaled->notes, Code::kLostByExport, "taken by no node"));
}

TEST_CASE("buffers and the slopes of PReLU that share a tensor get their own") {
  const auto frozen = import_trained(exported_model(
      "g (float[N,4] x, float[4] gain) => (float[N,4] y) { a = Mul(x, gain) y = Mul(a, gain) }",
      {{"a", call("mul.Tensor", "%x, %p_gain")}, {"y", call("mul.Tensor", "%a, %b_ones")}}, {"gain", "buffer ones"}));
  CHECK(trained_names(frozen) == std::set<std::string>{"gain"});
  CHECK_FALSE(decisions_of(frozen).at("ones").trainable);
  const auto slopes = import_trained(exported_model(
      "g (float[N,4] x, float[1,1] val_1) => (float[N,4] y) { a = PRelu(x, val_1) y = PRelu(a, val_1) }",
      {{"a", call("prelu.default", "%x, %p_one")}, {"y", call("prelu.default", "%a, %p_two")}}, {"one", "two"}));
  CHECK(trained_names(slopes) == std::set<std::string>{"one", "two"});
  CHECK(shape_of(slopes->graph, "two") == "1 ");
}

TEST_CASE("the slopes of PReLU are a vector, wherever axes of size 1 stand around it") {
  for (const std::string dims : {"[6,1,1]", "[1,6,1,1]"}) {
    const auto imported = import_trained(exported_model(
        text("g (float[N,6,2,2] x, float", dims, " val_1) => (float[N,6,2,2] y) { y = PRelu(x, val_1) }"),
        {{"y", call("prelu.default", "%x, %p_slopes")}}, {"slopes"}));
    CHECK(trained_names(imported) == std::set<std::string>{"slopes"});
    CHECK(shape_of(imported->graph, "slopes") == "6 ");
  }
  const auto both = import_trained(
      exported_model("g (float[N,3,6,6] x, float[6,1] val_1, float[1,6] val_2) => (float[N,3,6,6] y) { a = PRelu(x, "
                     "val_1) y = PRelu(a, val_2) }",
                     {{"a", call("prelu.default", "%x, %p_s")}, {"y", call("prelu.default", "%a, %p_s")}}, {"s"}));
  CHECK(trained_names(both) == std::set<std::string>{"s"});
}

TEST_CASE("what a call takes is read once, however it is written") {
  const auto parsed = parse_exported_call(
      "%y : [num_users=1] = call_function[target=torch.ops.aten.f](args = ([%a, 2], %%%b,"
      " %p_c), kwargs = {d: %e})");
  REQUIRE(parsed);
  CHECK(parsed->result == "y");
  CHECK(parsed->values == std::vector<std::string>{"%a", "%%%b", "%p_c", "%e"});
}

TEST_CASE("constants that share a parameter's tensor do not train, nor those of norms without weights") {
  const auto imported = import_trained(
      exported_model("g (float[N,4] x, float[4] w, float[4] val_5) => (float[N,4] y) { a = Mul(x, w) b = Mul(a, w) c = "
                     "LayerNormalization(b, w) d = LayerNormalization(c, val_5) y = Relu(d) }",
                     {{"a", call("mul.Tensor", "%x, %p_w")},
                      {"b", call("mul.Tensor", "%a, %full")},
                      {"c", call("layer_norm.default", "%clone, [4], None, None")},
                      {"d", call("layer_norm.default", "%c, [4]")}},
                     {"w"}));
  CHECK(trained_names(imported) == std::set<std::string>{"w"});
  CHECK(param_of(imported->graph, "w/constant").kind == ir::ParamKind::kConstant);
  CHECK(param_of(imported->graph, "val_5/constant").kind == ir::ParamKind::kConstant);
  // A bias that the module adds itself, and the optimiser has joined with the product before it.
  const auto joined = import_trained(exported_model(
      "g (float[N,4] x, float[4,4] w, float[4] shift) => (float[N,4] y) { y = Gemm<transB = 1>(x, w, shift) }",
      {{"y", call("linear.default", "%x, %p_w")}}, {"w", "shift"}));
  CHECK(trained_names(joined) == std::set<std::string>{"w", "shift"});
  // Another name of the parameter, which has no node.
  const auto alias = import_trained(
      exported_model("g (float[N,4] x, float[4] w) => (float[N,4] y) { a = Mul(x, w) y = Mul(a, w) }",
                     {{"a", call("mul.Tensor", "%x, %p_w")}, {"y", call("mul.Tensor", "%a, %alias")}}, {"w"}));
  CHECK(decisions_of(alias).count("w/constant") == 0);
}

TEST_CASE("weights that are computed from parameters beforehand are refused, whoever else reads these") {
  const auto refused = [](const std::string& weight, const std::string& argument) {
    const auto imported = import_trained(exported_model(
        text("g (int64[N] ids, float[5,3] table, float[3,5] ", weight,
             ") => (float[N,5] y) { a = Gather(table, ids) y = "
             "MatMul(a, ",
             weight, ") }"),
        {{"a", call("embedding.default", "%p_table, %ids")}, {"y", call("linear.default", text("%a, %", argument))}},
        {"table"}));
    return !imported.ok() &&
           reports(imported.problems(), Code::kLostByExport, text("'", weight, "': a product multiplies"));
  };
  CHECK(refused("t", "t"));
  CHECK(refused("add", "add"));
  CHECK(refused("val_3", "mul"));
  CHECK_FALSE(refused("val_3", "t"));
  CHECK_FALSE(refused("ones_1", "ones_1"));
}

TEST_CASE("parameters of a call in lists and beside others are missed, and biases of addmm are those of layers") {
  const auto of = [](const std::string& arguments) {
    return import_trained(exported_model(
        "g (float[N,4] x, float[4] w) => (float[N,4] y) { a = Sub(x, w) y = Mul(a, w) }",
        {{"a", "lerp|" + call("lerp.Tensor", arguments)}, {"y", "lerp|" + call("lerp.Tensor", arguments)}},
        {"w", "v"}));
  };
  CHECK_FALSE(of("%p_w, %x, %p_v").ok());
  CHECK_FALSE(of("[%x, %p_v], %p_w").ok());
  CHECK(of("%p_w, %x").ok());
  const auto added = [](const std::string& name) {
    return import_trained(exported_model("g (float[N,4] x, float[4,4] w) => (float[N,4] y) { y = Gemm(x, w) }",
                                         {{"y", call("addmm.default", text("%p_", name, ", %x, %p_w"))}}, {"w", name}));
  };
  CHECK(added("c_attn.bias").ok());
  CHECK_FALSE(added("shift").ok());
}
