// Which tensors train: roles by slots, signatures, rules, ties, losses.

#include "frontend/parameters.h"

#include <map>

#include "frontend/parameter_rules.h"
#include "support/name_pattern.h"
#include "tests/support/onnx_text.h"
#include "tests/support/weighted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

namespace pb = graphpipe_onnx;

const char* const kLayers = R"(g (float[N,4] x, float[4,4] w, float[4] b, float[4] gain, float[4] shift, float c,
                                  float[4] mean) => (float[N,4] y) {
  a = MatMul(x, w)
  d = Add(a, b)
  e = LayerNormalization(d, gain, shift)
  f = Mul(e, c)
  y = Sub(f, mean)
})";

pb::ModelProto layers() {
  return model_with(kLayers, {{"w", {4, 4}}, {"b", {4}}, {"gain", {4}}, {"shift", {4}}, {"c", {}}, {"mean", {4}}});
}

}  // namespace

TEST_CASE("patterns match as shells do") {
  CHECK(matches("*", ""));
  CHECK(matches("a*c", "abbc"));
  CHECK(matches("*.bias", "layer.0.bias"));
  CHECK(matches("l?", "l1"));
  CHECK_FALSE(matches("l?", "l"));
  CHECK_FALSE(matches("", "x"));
  CHECK_FALSE(matches("a*b", "ac"));
  // Many stars on a long name end quickly.
  CHECK_FALSE(matches("*a*a*a*a*a*a*a*a*a*a*b", std::string(5000, 'a')));
}

TEST_CASE("names of a state_dict are told from names that exporters make") {
  for (const char* name : {"encoder.0.norm.weight", "head.bias", "lstm.weight_ih_l0", "bn.running_mean"})
    CHECK(is_parameter_name(name));
  for (const char* name : {"val_12", "weight", "/encoder/Identity_output_0", "onnx::MatMul_12", "add.1"})
    CHECK_FALSE(is_parameter_name(name));
}

TEST_CASE("without a signature the slot decides: layers train, scalars and what no layer reads do not") {
  const auto decisions = decisions_of(import_bytes(layers().SerializeAsString()));
  CHECK(decisions.at("w").role == ParameterRole::kWeight);
  CHECK(decisions.at("b").role == ParameterRole::kBias);
  CHECK(decisions.at("gain").role == ParameterRole::kScale);
  for (const char* name : {"w", "b", "gain", "shift"}) CHECK(decisions.at(name).trainable);
  CHECK_FALSE(decisions.at("c").trainable);
  CHECK_FALSE(decisions.at("mean").trainable);
}

TEST_CASE("the exporter's signature goes before the slots") {
  pb::ModelProto model = layers();
  auto& entry = *model.mutable_graph()->add_metadata_props();
  entry.set_key("pkg.torch.export.ExportedProgram.graph_signature");
  entry.set_value("# inputs\np_c: PARAMETER target='c'\nb_b: BUFFER target='b'\nx: USER_INPUT\n");
  const auto decisions = decisions_of(import_bytes(model.SerializeAsString()));
  CHECK(decisions.at("c").trainable);
  CHECK_FALSE(decisions.at("b").trainable);
  CHECK_FALSE(decisions.at("w").trainable);
}

TEST_CASE("the parameter file goes before both, later lines win, and it must name something") {
  ImportRequest request;
  request.spec.freeze = {ModelText("w")};
  request.spec.parameter_rules = ModelText("# comment\n* freeze\nc -> train  # a scalar\nw train\n");
  const auto decisions = decisions_of(import_bytes(layers().SerializeAsString(), request));
  CHECK(decisions.at("w").trainable);
  CHECK(decisions.at("c").trainable);
  CHECK_FALSE(decisions.at("gain").trainable);

  request.spec.parameter_rules = ModelText("nothing.* train\n");
  CHECK(reports(import_bytes(layers().SerializeAsString(), request).problems(), Code::kBadParameter, "nothing"));
  request.spec.parameter_rules = ModelText("w unused\n");
  CHECK(reports(import_bytes(layers().SerializeAsString(), request).problems(), Code::kBadParameter, "'w'"));
  request.spec.parameter_rules = ModelText("* unused\nnothing unused\n");
  CHECK(import_bytes(layers().SerializeAsString(), request).ok());
  request.spec.parameter_rules = ModelText("w\nb perhaps\nb train please\n");
  const Diagnostics problems = import_bytes(layers().SerializeAsString(), request).problems();
  CHECK(problems.size() == 3);
  CHECK(reports(problems, Code::kBadParameter, "line 2"));
}

TEST_CASE("the weights of a layer are found through views of them") {
  const auto decisions = decisions_of(import_bytes(model_with(R"(g (float[N,4] x, float[8,2] w) => (float[N,4] y) {
        shape = Constant<value_ints = [4, 4]>()
        a = Reshape(w, shape)
        b = Transpose(a)
        y = MatMul(x, b)
      })",
                                                              {{"w", {8, 2}}})
                                                       .SerializeAsString()));
  CHECK(decisions.at("w").role == ParameterRole::kWeight);
  CHECK(decisions.at("w").trainable);
}

TEST_CASE("the strongest of a weight's uses is its role, wherever it stands") {
  for (const char* body :
       {"g (float[N,4,4] x, float[4,4] w) => (float[N,4,4] y) { a = Add(x, w) y = MatMul(a, w) }",
        "g (float[N,4,4] x, float[4,4] w) => (float[N,4,4] y) { a = MatMul(x, w) y = Add(a, w) }",
        "g (float[N,4,4] x, float[4,4] w) => (float[N,4,4] y) { t = Transpose(w) u = Neg(t) a = Add(x, w) "
        "y = MatMul(a, u) }"}) {
    CAPTURE(body);
    const auto decisions = decisions_of(import_bytes(model_with(body, {{"w", {4, 4}}}).SerializeAsString()));
    CHECK(decisions.at("w").role == ParameterRole::kWeight);
    CHECK(decisions.at("w").reason == "weight of MatMul");
  }
}

TEST_CASE("an Identity alias stays tied where it is anonymous, and is parted where it is named like a parameter") {
  const auto plain = [](std::string alias) {
    pb::ModelProto built = model_with(
        "g (float[N,4] x, float[4,4] w) => (float[N,4] y) { alias = Identity(w) a = MatMul(x, w) y = MatMul(a, alias) "
        "}",
        {{"w", {4, 4}}});
    built.mutable_graph()->mutable_node(0)->set_output(0, alias);
    built.mutable_graph()->mutable_node(2)->set_input(1, alias);
    return built.SerializeAsString();
  };
  const auto copied = import_bytes(plain("val_1"));
  REQUIRE(decisions_of(copied).size() == 1);
  CHECK(copied->parameters[0].aliases.empty());  // a value of the exporter's, no name of the module
  const auto parted = import_bytes(plain("layers.1.norm.weight"));
  CHECK(decisions_of(parted).size() == 2);
  CHECK(reports(parted->notes, Code::kLostByExport, "layers.1.norm.weight"));
  ImportRequest request;
  request.spec.parameter_rules = ModelText("layers.1.* tie\n");
  const auto tied = import_bytes(plain("layers.1.norm.weight"), request);
  REQUIRE(decisions_of(tied).size() == 1);
  CHECK(tied->parameters[0].aliases == std::vector<ModelText>{ModelText("layers.1.norm.weight")});
  request.spec.parameter_rules = ModelText("val_1 split\n");
  CHECK(decisions_of(import_bytes(plain("val_1"), request)).size() == 2);
}

TEST_CASE("a parameter has the names that rules tie it to, but for those of others") {
  const pb::ModelProto model =
      model_with("g (float[N,4] x, float[4,4] w, float[4,4] v) => (float[N,4] y) { a = MatMul(x, w) y = MatMul(a, v) }",
                 {{"w", {4, 4}}, {"v", {4, 4}}});
  ImportRequest request;
  request.spec.parameter_rules = ModelText("head tie w\nhead tie other\nv tie w\nlast freeze\nlast tie v\n");
  const auto imported = import_bytes(model.SerializeAsString(), request);
  const auto decisions = decisions_of(imported);
  REQUIRE(decisions.size() == 2);
  CHECK(decisions.at("w").aliases == std::vector<ModelText>{ModelText("head"), ModelText("last"), ModelText("other")});
  CHECK(decisions.at("v").aliases.empty());
  CHECK_FALSE(decisions.at("w").trainable);
  CHECK(decisions.at("v").trainable);
  for (const char* line : {"he* tie w\n", "head tie w?\n", "head tie w v\n"}) {
    request.spec.parameter_rules = ModelText(line);
    CHECK_FALSE(import_bytes(model.SerializeAsString(), request).ok());
  }
}

TEST_CASE("names that are tied by the thousand take no longer than as many others") {
  std::string rules;
  for (int i = 0; i < 5000; ++i) rules += text("name.", i, " tie name.", i / 2, "\n");
  rules += "w tie name.7\n";
  ImportRequest request;
  request.spec.parameter_rules = ModelText(rules);
  const pb::ModelProto model =
      model_with("g (float[N,4] x, float[4,4] w) => (float[N,4] y) { y = MatMul(x, w) }", {{"w", {4, 4}}});
  CHECK(decisions_of(import_bytes(model.SerializeAsString(), request)).at("w").aliases.size() == 5000);
}

TEST_CASE("an optimised torch export is reported, never trained in silence") {
  pb::ModelProto model =
      model_with("g (float[N,4] x, float[4,4] val_7) => (float[N,4] y) { y = MatMul(x, val_7) }", {{"val_7", {4, 4}}});
  model.set_producer_name("pytorch");
  const auto imported = import_bytes(model.SerializeAsString());
  REQUIRE(imported.ok());
  CHECK(reports(imported->notes, Code::kLostByExport, "optimize=False"));
}

TEST_CASE("a table of single numbers that a TorchScript export looks up is no embedding") {
  const auto decided = [](std::vector<int64_t> dims) {
    pb::ModelProto model = model_with(
        text("g (int64[N] i, float", dims.size() == 1 ? "[9]" : "[9,4]", " ac, float[4] b) => (float[N,4] y) { ",
             dims.size() == 1 ? "a = Gather(ac, i) c = Unsqueeze<axes = [1]>(a) y = Add(c, b) }"
                              : "a = Gather(ac, i) y = Add(a, b) }"),
        {{"ac", dims}, {"b", {4}}});
    model.mutable_opset_import(0)->set_version(11);
    model.set_producer_name("pytorch");
    const auto imported = import_bytes(model.SerializeAsString());
    const bool trains = decisions_of(imported).at("ac").trainable;
    CHECK(reports(imported->notes, Code::kLostByExport, "tables of single numbers") != trains);
    return trains;
  };
  CHECK_FALSE(decided({9}));
  CHECK(decided({9, 4}));
}

TEST_CASE("a TorchScript export's normalisation with fixed statistics is no layer that trains") {
  const auto decided = [](const char* mean, const char* producer) {
    pb::ModelProto model =
        model_with(text("g (float[N,4] x, float[4] ", mean, ", float[4] scale) => (float[N,4] y) { a = Sub(x, ", mean,
                        ") b = Mul(a, scale) c = Add(b, ", mean, ") y = Identity(c) }"),
                   {{mean, {4}}, {"scale", {4}}});
    const std::map<std::string, std::string> names = {
        {"scale", "backbone.norm.weight"}, {"mean", "backbone.norm.running_mean"}, {"shift", "backbone.norm.shift"}};
    for (pb::TensorProto& tensor : *model.mutable_graph()->mutable_initializer())
      tensor.set_name(names.at(tensor.name()));
    for (pb::NodeProto& node : *model.mutable_graph()->mutable_node())
      for (std::string& input : *node.mutable_input())
        if (names.contains(input)) input = names.at(input);
    model.mutable_graph()->mutable_input()->DeleteSubrange(1, model.graph().input_size() - 1);
    model.set_producer_name(producer);
    return import_bytes(model.SerializeAsString());
  };
  const auto fixed = decided("mean", "pytorch");
  CHECK_FALSE(decisions_of(fixed).at("backbone.norm.running_mean").trainable);
  CHECK_FALSE(decisions_of(fixed).at("backbone.norm.weight").trainable);
  CHECK(reports(fixed->notes, Code::kLostByExport, "statistics are added and multiplied"));
  const auto learned = decided("shift", "pytorch");
  CHECK(decisions_of(learned).at("backbone.norm.weight").trainable);
  CHECK_FALSE(reports(learned->notes, Code::kLostByExport, "statistics are added and multiplied"));
}

TEST_CASE("what a TorchScript export trains by a guess is named, unless its name says that it is a parameter") {
  const auto imported_with = [](const char* name) {
    pb::ModelProto model =
        model_with("g (float[N,4] x, float[1,4] b) => (float[N,4] y) { y = Add(x, b) }", {{"b", {1, 4}}});
    model.mutable_graph()->mutable_initializer(0)->set_name(name);
    model.mutable_graph()->mutable_node(0)->set_input(1, name);
    model.mutable_graph()->mutable_input()->DeleteSubrange(1, model.graph().input_size() - 1);
    model.set_producer_name("pytorch");
    const auto imported = import_bytes(model.SerializeAsString());
    CHECK(decisions_of(imported).at(name).trainable);
    return imported;
  };
  const auto guessed = imported_with("m.final_logits_bias");
  CHECK(reports(guessed->notes, Code::kLostByExport, "'m.final_logits_bias'"));
  const auto named = imported_with("m.out.bias");
  CHECK_FALSE(reports(named->notes, Code::kLostByExport, "'m.out.bias'"));
}

TEST_CASE("scalars that train by a guess, and powers whatever their names, are named too") {
  const auto is_named = [](const char* name, const char* node) {
    pb::ModelProto model =
        model_with(text("g (float[N,4] x, float b) => (float[N,4] y) { y = ", node, " }").c_str(), {{"b", {}}});
    model.mutable_graph()->mutable_initializer(0)->set_name(name);
    model.mutable_graph()->mutable_node(0)->set_input(1, name);
    model.mutable_graph()->mutable_input()->DeleteSubrange(1, model.graph().input_size() - 1);
    model.set_producer_name("pytorch");
    const auto imported = import_bytes(model.SerializeAsString());
    CHECK(decisions_of(imported).at(name).trainable);
    return reports(imported->notes, Code::kLostByExport, text("'", name, "'"));
  };
  CHECK(is_named("criterion.gamma", "Pow(x, b)"));
  CHECK(is_named("m.temperature", "Mul(x, b)"));
  CHECK_FALSE(is_named("m.norm.gamma", "Mul(x, b)"));
}

TEST_CASE("a token behind a mask, and the power of a mean, train where they have names of a module's state") {
  const auto trains = [](const std::string& name, const std::string& dims, const std::string& node,
                         const std::string& producer = "pytorch") {
    pb::ModelProto model = model_with(text("g (float[N,4] x, float", dims,
                                           " b) => (float[N,4] y) { zero = Constant<value_float = 0.0>() hidden = "
                                           "Greater(x, zero) y = ",
                                           node, " }")
                                          .c_str(),
                                      {{"b", dims == "[4]" ? std::vector<int64_t>{4} : std::vector<int64_t>{1}}});
    model.mutable_graph()->mutable_initializer(0)->set_name(name);
    for (auto& each : *model.mutable_graph()->mutable_node())
      for (auto& input : *each.mutable_input())
        if (input == "b") input = name;
    model.mutable_graph()->mutable_input()->DeleteSubrange(1, model.graph().input_size() - 1);
    model.set_producer_name(producer);
    return decisions_of(import_bytes(model.SerializeAsString())).at(name).trainable;
  };
  CHECK(trains("m.mask_token", "[4]", "Where(hidden, x, b)"));
  CHECK(trains("m.p", "[1]", "Pow(x, b)"));
  CHECK_FALSE(trains("m.masked_bias", "[1]", "Where(hidden, x, b)"));
  CHECK_FALSE(trains("onnx::Where_7", "[4]", "Where(hidden, x, b)"));
  CHECK_FALSE(trains("m.mask_token", "[4]", "Where(hidden, x, b)", "tf2onnx"));
  CHECK_FALSE(trains("m.p", "[1]", "Pow(b, x)"));
}

TEST_CASE("filled tensors in weight slots become parameters") {
  const auto imported = import_text(R"(g (float[N,4] x) => (float[N,8] y) {
    shape = Constant<value_ints = [4, 8]>()
    w = ConstantOfShape<value = float[1] {0.02}>(shape)
    y = MatMul(x, w)
  })");
  const auto decisions = decisions_of(imported);
  CHECK(decisions.at("w").trainable);
  const ir::Param& param = imported->graph.param(decisions.at("w").param);
  REQUIRE(std::holds_alternative<ir::FilledData>(param.data));
  CHECK(std::get<ir::FilledData>(param.data).value == doctest::Approx(0.02));
}

TEST_CASE("BatchNormalization whose statistics are computed keeps its form") {
  const auto imported = import_bytes(
      model_with(R"(g (float[N,4] x, float[4,4] w, float[4] gain, float[4] shift, float[4] m) => (float[N,4] y) {
        zero = Constant<value_ints = [0]>()
        mean = ReduceMean<keepdims = 0>(w, zero)
        square = Mul(w, w)
        var = ReduceMean<keepdims = 0>(square, zero)
        y = BatchNormalization(x, gain, shift, mean, var)
      })",
                 {{"w", {4, 4}}, {"gain", {4}}, {"shift", {4}}, {"m", {4}}})
          .SerializeAsString());
  REQUIRE(imported.ok());
  for (ir::NodeId id : imported->graph.node_ids())
    if (imported->graph.node(id).op == "BatchNormalization")
      CHECK(imported->graph.node(id).attributes.get_int("training_mode", 0) == 0);
}

TEST_CASE("in torch's files masks and numbers of the code do not train, scalars of the module do") {
  const std::string torch = "<ir_version: 10, opset_import: [\"\" : 21], producer_name: \"pytorch\">";
  const auto decisions = decisions_of(import_text(torch + R"(g (float[N,2,2] x) => (float[N,2,2] y)
    <float[2,2] attn_mask = {0, -inf, 0, 0}, float[2,2] table = {0.5, 1, 1, 1}, float logit_scale = {2}> {
    ones = Constant<value = float[2] {1.5, 1}>()
    a = Add(x, attn_mask)
    b = Add(a, table)
    c = Mul(b, ones)
    d = Exp(logit_scale)
    y = Mul(c, d)
  })"));
  CHECK_FALSE(decisions.at("attn_mask").trainable);
  CHECK(decisions.at("attn_mask").reason == "a mask");
  CHECK(decisions.at("table").trainable);
  CHECK_FALSE(decisions.at("ones").trainable);
  CHECK(decisions.at("logit_scale").trainable);
}

TEST_CASE("what a torch file writes as a constant trains in no slot") {
  const std::string body = R"(g (float[N,2] x, int64[N] k) => (float[N,2] y)
    <float[2,2] w = {1, 2, 3, 4}> {
    places = Constant<value = float[2,2] {0.5, 1, 2, 1}>()
    bias = MatMul(places, w)
    rows = Gather(places, k)
    a = MatMul(x, bias)
    y = Add(a, rows)
  })";
  const std::string torch = "<ir_version: 10, opset_import: [\"\" : 21], producer_name: \"pytorch\">";
  const auto decisions = decisions_of(import_text(torch + body));
  CHECK_FALSE(decisions.at("places").trainable);
  CHECK(decisions.at("places").reason == "a constant of the module's code");
  CHECK(decisions.at("w").trainable);
  CHECK(decisions_of(import_text(body)).at("places").trainable);
}

TEST_CASE("a padding row goes to the look-ups of its table, not to its other readers") {
  const char* const body = R"(g (int64[N,3] ids, float[5,4] table) => (float[N,3,5] y) {
  rows = Gather(table, ids)
  turned = Transpose <perm = [1, 0]> (table)
  y = MatMul(rows, turned)
})";
  const auto import = [&](const std::string& rules) {
    return import_bytes(model_with(body, {{"table", {5, 4}}}).SerializeAsString(),
                        {.spec = {.parameter_rules = ModelText(rules)}});
  };
  const auto problem = [&](const std::string& rules) {
    const Result<Imported> refused = import(rules);
    return refused.ok() ? "" : to_line(refused.problems().front());
  };
  const Result<Imported> imported = import("table padding 2\n");
  REQUIRE(imported.ok());
  int look_ups = 0;
  for (const ir::NodeId id : imported->graph.node_ids()) {
    const ir::Node& node = imported->graph.node(id);
    CHECK(node.attributes.get_int("padding_row", -1) == (node.op == "Gather" ? 2 : -1));
    look_ups += node.op == "Gather" ? 1 : 0;
  }
  CHECK(look_ups == 1);
  CHECK(problem("table padding 5\n").find("no row 5") != std::string::npos);
  CHECK(problem("table padding -1\n").find("line 1") != std::string::npos);
  CHECK(problem("table padding\n").find("line 1") != std::string::npos);
  CHECK(problem("nothing padding 1\n").find("names no parameter") != std::string::npos);
  CHECK(problem("table split\n").find("names no parameter that the file merges with another") != std::string::npos);
}

TEST_CASE("frequencies of rotary positions are no weight although a product reads them; products of weights are") {
  const auto decisions = decisions_of(
      import_bytes(model_with(R"(g (float[N,2,4] x, float[2,1] freq, float[4,2] a, float[2,4] b) => (float[N,2,4] y) {
    numbers = Constant<value = int64[1,4] {0, 1, 2, 3}>()
    places = Cast<to = 1>(numbers)
    angles = MatMul(freq, places)
    turned = Cos(angles)
    z = Mul(x, turned)
    w = MatMul(a, b)
    y = MatMul(z, w)
})",
                              {{"freq", {2, 1}}, {"a", {4, 2}}, {"b", {2, 4}}})
                       .SerializeAsString()));
  CHECK(!decisions.at("freq").trainable);
  CHECK(decisions.at("a").trainable);
  CHECK(decisions.at("b").trainable);
}
