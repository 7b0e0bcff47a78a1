// Parameters come back from which an exporter's optimiser has computed tensors beforehand.

#include "frontend/restore_folded.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "frontend/code_line.h"
#include "frontend/export_onnx.h"
#include "frontend/folding_note.h"
#include "ir/verify_graph.h"
#include "tests/support/count_ops.h"
#include "tests/support/noted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

/// y = x * value, where the module's program has the value under this name, computed from `w`.
Result<Imported> scaled_by(const std::string& value, const std::string& dims, const std::string& note,
                           const std::vector<float>& elements, const std::string& taken = "") {
  return import_noted(
      exported_model(
          text("g (float[N,2,3] x, float", dims, " ", value, ") => (float[N,2,3] y) { y = Mul(x, ", value, ") }"),
          {{"y", taken_by("mul.Tensor", "%x, %" + (taken.empty() ? value : taken))}}, {"w", "v", "buffer b"}),
      {{{value, note}}, {{value, elements}}, {}});
}

}  // namespace

TEST_CASE("a note on what a tensor was computed from is read as Python prints names") {
  CHECK(parse_names("['a', 'b.c']") == std::vector<std::string>{"a", "b.c"});
  for (const char* text : {"", "[]", "['a'", "['a' 'b']", "['a', b]", "[\"a\"]", "['a\\'']"})
    CHECK(parse_names(text).empty());
  CHECK(call_of_value("unsqueeze_12") == "unsqueeze");
  CHECK(call_of_value("exp2") == "exp2");
  CHECK(call_of_value("exp_") == "exp_");
}

TEST_CASE("lines of code say which members they name, what they call on one and what they add to it") {
  CHECK(members_in("x = self.norm.weight * myself.a + self.b[0]") ==
        std::set<std::string>{"norm", "norm.weight", "a", "b"});
  std::string chain = "self.a";
  for (int i = 0; i < 100'000; ++i) chain += ".a";
  CHECK(members_in(chain).size() < 1000);
  CHECK(calls_on_member("x = x * self.s.unsqueeze(-1).view(1, (2))", "s") == ".unsqueeze(-1).view(1,(2))");
  CHECK(calls_on_member("return self.s[None, :] * x", "s") == "[None,:]");
  CHECK(calls_on_member("    y = (self.s.T + x)", "s") == ".T");
  for (const char* line : {"x * torch.exp(self.s)", "x = -self.s.T", "x = x ** self.s", "x = self.s * self.s",
                           "x = self.s2", "x = self.inner.s", "x = self.s.view(1", "x - self.s"})
    CHECK_FALSE(calls_on_member(line, "s"));
  using Members = std::vector<std::string>;
  CHECK(members_called_alike("f(self.b.view(self.s), self.a.view(self.s), self.c.view(1))", "a") == Members{"b", "a"});
  for (const char* line : {"f(self.a, self.b)", "self.a.t() + self.a.t()", "self.b.t()"})
    CHECK(members_called_alike(line, "a").empty());
  CHECK(members_called_alike("self.a.t()" + std::string(10000, ' '), "a").empty());  // longer than any code
  CHECK(number_added("output = output * (1.0 + self.weight.float())", "weight") == 1);
  CHECK(number_added("return x * (self.weight + 2)", "weight") == 2);
  for (const char* line : {"x * (1.0 - self.weight)", "x * (2 * 1.0 + self.weight)", "x * (1.0 + self.weight * 2)",
                           "x * norm(1.0 + self.weight)", "x * (b + self.weight)", "x * (1.0 + self.weights)",
                           "x * 1.0 + self.weight", "(1 + self.weight) * (1 + self.weight)"})
    CHECK_FALSE(number_added(line, "weight"));
}

TEST_CASE("a product with a folded transpose trains the parameter, of which the file has one tensor") {
  const auto product = [](const std::string& more, const std::vector<float>& table) {
    return import_noted(
        exported_model(text("g (float[N,2] x, float[2,3] permute, float[3,2] w) => (float[N,3] y) { z = MatMul(x, "
                            "permute) ",
                            more, " }"),
                       {{"z", taken_by("matmul.default", "%x, %permute")}}, {"w"}),
        {{{"permute", "['w']"}}, {{"permute", {0, 1, 2, 3, 4, 5}}, {"w", table}}, {}});
  };
  const auto imported = product("y = Relu(z)", {});
  CHECK(trained(imported) == std::set<std::string>{"w"});
  CHECK(shape(imported->graph, "w") == "3 2 ");
  CHECK(elements(imported->graph, "w") == std::vector<float>{0, 3, 1, 4, 2, 5});
  CHECK(count_ops(imported->graph, "Transpose") == 1);
  CHECK(reports(imported->notes, Code::kLostByExport, "'w': this tensor of the module is there again"));
  const std::string both = "a = MatMul(z, w) b = ReduceSum(a) y = Add(z, b)";
  const auto tied = product(both, {0, 3, 1, 4, 2, 5});
  CHECK(trained(tied) == std::set<std::string>{"w"});
  CHECK(count_ops(tied->graph, "Transpose") == 1);
  CHECK(is_refused(product(both, {0, 3, 1, 4, 2, 6})));  // it was not computed from that
}

TEST_CASE("gates and exponentials that another line reads than computes may have no gradient, which is said") {
  const auto said = [](const std::string& call, const std::string& line) {
    const auto imported = import_noted(
        exported_model("g (float[N,3] x, float[] " + call + ") => (float[N,3] y) { y = Mul(x, " + call + ") }",
                       {{"y", taken_by("mul.Tensor", "%x, %" + call)}}, {"w"}),
        {{{call, "['w']"}}, {{call, {0.5F}}}, {{"y", {"", "\"model.py\", line 4, in forward\n    " + line}}}});
    REQUIRE(imported.ok());
    for (const std::string severity : {"warning", "note"})
      if (reports(imported->notes, Code::kLostByExport, severity + "[lost-by-export] '" + call + "'")) return severity;
    return std::string();
  };
  CHECK(said("tanh", "return x * gate") == "warning");
  CHECK(said("tanh", "return x * self.w.tanh()").empty());
  CHECK(said("tanh", "return x * torch.tanh(self.w)").empty());
  CHECK(said("exp", "return x * scale") == "note");  // as CLIP has it, which has a gradient
  CHECK(said("exp", "return x * torch.logsumexp(scale, 0)") == "note");
  CHECK(said("exp", "return x * self.w.exp()").empty());
}

TEST_CASE("axes go where it does not matter which, and exponentials and negatives are taken back") {
  const auto one = scaled_by("unsqueeze_1", "[2,1]", "['val_2', 'w']", {1, 2});
  CHECK(trained(one) == std::set<std::string>{"w"});
  CHECK(shape(one->graph, "w") == "2 ");
  CHECK(shape(scaled_by("unsqueeze_1", "[1,2,1]", "['unsqueeze', 'w']", {1, 2})->graph, "w") == "2 ");
  CHECK(shape(scaled_by("unsqueeze", "[1,1,3]", "['w']", {1, 2, 3})->graph, "w") == "1 3 ");
  CHECK(shape(scaled_by("unsqueeze", "[2,1]", "['squeeze', 'w']", {1, 2})->graph, "w") == "2 1 ");
  for (const char* call : {"unsqueeze", "squeeze", "view"}) {
    const auto vector = scaled_by(call, "[1,2,1]", "['val_2', 'w']", {1, 2});
    CHECK(shape(vector->graph, "w") == "2 ");
    CHECK_FALSE(reports(vector->notes, Code::kLostByExport, "reshaped"));
  }
  // Which axes a matrix had before is not said.
  const auto matrix = scaled_by("view", "[1,2,3]", "['val_2', 'w']", {1, 2, 3, 4, 5, 6});
  CHECK(shape(matrix->graph, "w") == "2 3 ");
  CHECK(elements(matrix->graph, "w") == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(reports(matrix->notes, Code::kLostByExport, "'w': the exporter's optimiser has reshaped this parameter"));

  const auto scale = scaled_by("exp", "", "['w']", {std::exp(2.6592F)});
  CHECK(trained(scale) == std::set<std::string>{"w"});
  CHECK(elements(scale->graph, "w") == std::vector<float>{2.6592F});
  CHECK(elements(scaled_by("neg", "[3]", "['w']", {1, 2, 3})->graph, "w") == std::vector<float>{-1, -2, -3});
  const auto gate = scaled_by("tanh", "", "['w']", {0});  // as the gates of Flamingo begin
  REQUIRE(gate.ok());
  CHECK(elements(gate->graph, "w") == std::vector<float>{0});
  CHECK(count_ops(gate->graph, "Tanh") == 1);
  const auto share = scaled_by("sigmoid_1", "[3]", "['w']", {0.5F, 1 / (1 + std::exp(-2.0F)), 0.25F});
  REQUIRE(share.ok());
  CHECK(count_ops(share->graph, "Sigmoid") == 1);
  CHECK(elements(share->graph, "w")[1] == doctest::Approx(2).epsilon(1e-6));
  CHECK(is_refused(scaled_by("tanh", "", "['w']", {0.999F})));  // of many numbers
  CHECK(is_refused(scaled_by("tanh", "", "['w']", {-1})));
  CHECK(is_refused(scaled_by("sigmoid", "[3]", "['w']", {0.5F, 0.5F, 1})));
  CHECK(is_refused(scaled_by("neg", "[3]", "['sigmoid', 'w']", {-0.5F, -0.5F, -0.5F})));
  // The negative of an exponential, and the exponential of a negative.
  const auto decay = scaled_by("unsqueeze", "[2,1]", "['exp', 'neg', 'w']", {-1, -std::exp(3.0F)});
  CHECK(elements(decay->graph, "w") == std::vector<float>{0, 3});
  CHECK(count_ops(decay->graph, "Exp") == 1);
  const auto inverse = scaled_by("unsqueeze", "[2,1]", "['exp', 'neg', 'w']", {1, std::exp(-3.0F)});
  CHECK(elements(inverse->graph, "w").at(1) == doctest::Approx(3));
  CHECK(is_refused(scaled_by("unsqueeze", "[2,1]", "['exp', 'neg', 'w']", {-1, 1})));
  CHECK(is_refused(scaled_by("exp", "[3]", "['w']", {1, 0, 1})));
}

TEST_CASE("what repeat reads is the parameter with the axes that it repeats") {
  const auto repeated = [](const std::string& target, const std::string& note) {
    return import_noted(
        exported_model(
            "g (float[N,1,3] x, float[1,1,3] val_7) => (float[N,1,3] y) { n = Shape<end = 1>(x) one = "
            "Constant<value_ints = [1]>() r = Concat<axis = 0>(n, one, one) t = Tile(val_7, r) y = Add(x, t) }",
            {{"t", taken_by(target, "%p_w, [%sym_size_int, 1, 1]")}, {"y", taken_by("add.Tensor", "%x, %t")}}, {"w"}),
        {{{"val_7", note}}, {{"val_7", {1, 2, 3}}}, {}});
  };
  const auto imported = repeated("repeat.default", "['val_6', 'w']");
  CHECK(trained(imported) == std::set<std::string>{"w"});
  CHECK(shape(imported->graph, "w") == "1 1 3 ");
  CHECK(is_refused(repeated("repeat.default", "['relu', 'w']")));
  CHECK(is_refused(repeated("own.default", "['val_6', 'w']")));
}

TEST_CASE("a parameter that is indexed is read itself, or turned where its columns are picked") {
  const auto indexed = [](const std::string& indices, const std::string& note, const std::string& more = "") {
    return import_noted(
        exported_model(text("g (int64[N,4] i, float[3,2] val_2, float[3,2] w) => (float[N,4,2] y) { axis = "
                            "Constant<value_ints = [-1]>() at = Unsqueeze(i, axis) z = GatherND(val_2, at) ",
                            more.empty() ? "y = Relu(z)" : more, " }"),
                       {{"z", taken_by("index.Tensor", "%p_w, " + indices)}}, {"w", "buffer b"}),
        {{{"val_2", note}}, {{"val_2", {0, 1, 2, 3, 4, 5}}, {"w", {0, 1, 2, 3, 4, 5}}}, {}});
  };
  for (const std::string indices : {"[%i]", "[%i, None]"}) {
    const auto imported = indexed(indices, "['w']");
    CHECK(trained(imported) == std::set<std::string>{"w"});
    CHECK(elements(imported->graph, "w") == std::vector<float>{0, 1, 2, 3, 4, 5});
  }
  const auto columns = indexed("[None, %i]", "['w']");
  CHECK(shape(columns->graph, "w") == "2 3 ");
  CHECK(elements(columns->graph, "w") == std::vector<float>{0, 2, 4, 1, 3, 5});
  // What is read beside it is the same parameter.
  CHECK(trained(indexed("[%i]", "['w']", "s = ReduceSum(w) y = Mul(z, s)")) == std::set<std::string>{"w"});
  for (const std::string indices : {"[None, None, %i]", "[%i, None, %i]", "[]", "%i"})
    CHECK(is_refused(indexed(indices, "['w']")));
  CHECK(is_refused(indexed("[%i]", "['relu', 'w']")));
  CHECK(is_refused(indexed("[%i]", "['b', 'w']")));
}

TEST_CASE("two parameters that began alike and are indexed have a tensor each") {
  const auto imported = import_noted(
      exported_model("g (int64[N,4] i, float[3,2] val_2) => (float[N,4,2] y) { axis = Constant<value_ints = [-1]>() at "
                     "= Unsqueeze(i, axis) z = GatherND(val_2, at) a = Relu(z) b = GatherND(val_2, at) y = Add(a, b) }",
                     {{"z", taken_by("index.Tensor", "%p_v, [%i]")}, {"b", taken_by("index.Tensor", "%p_w, [%i]")}},
                     {"v", "w"}),
      {{{"val_2", "['v']"}}, {{"val_2", {0, 0, 0, 0, 0, 0}}}, {}});
  CHECK(trained(imported) == std::set<std::string>{"v", "w"});
}

TEST_CASE("what other calls, buffers or several parameters had a part in is refused, and what is read otherwise") {
  for (const std::string note : {"['relu', 'w']", "['detach', 'w']", "['exp2', 'w']", "['w', 'v']", "['b', 'w']"}) {
    CAPTURE(note);
    CHECK(is_refused(scaled_by("unsqueeze", "[2,1]", note, {1, 2})));
  }
  CHECK(is_refused(scaled_by("exp2", "[3]", "['w']", {1, 2, 3})));
  CHECK(is_refused(scaled_by("unsqueeze", "[2,1]", "['w']", {1, 2}, "detach")));
  CHECK(is_refused(scaled_by("unsqueeze", "[2,1]", "['w']", {1, 2}, "unsqueeze_1")));
  // A permutation of three axes says not which; its elements are those of one parameter where they differ.
  CHECK(is_refused(scaled_by("permute", "[1,2,3]", "['w']", {1, 2, 3, 4, 5, 1})));
}

TEST_CASE("a part of a parameter that was computed beforehand does not stand still beside the rest") {
  const auto imported = import_noted(
      exported_model("g (float[N,3] x, float[3] w, float[3] relu) => (float[N,3] y) { z = Add(x, w) y = Mul(z, relu) }",
                     {{"z", taken_by("add.Tensor", "%x, %p_w")}, {"y", taken_by("mul.Tensor", "%z, %relu")}}, {"w"}),
      {{{"relu", "['w']"}}, {}, {}});
  REQUIRE(is_refused(imported));
  CHECK(reports(imported.problems(), Code::kLostByExport, "'relu': the exporter's optimiser has computed this"));
}

namespace {

/// Three products with values of parameters that began alike, of which the file has one.
Result<Imported> merged_blocks(const std::map<std::string, std::pair<std::string, std::string>>& places,
                               const std::vector<std::string>& parameters = {"a.s1", "a.s2", "b.s1"}) {
  return import_noted(
      exported_model("g (float[N,2,3] x, float[2,1] unsqueeze) => (float[N,2,3] y) { p = Mul(x, unsqueeze) q = Mul(p, "
                     "unsqueeze) y = Mul(q, unsqueeze) }",
                     {{"p", taken_by("mul.Tensor", "%x, %unsqueeze")},
                      {"q", taken_by("mul.Tensor", "%p, %unsqueeze_1")},
                      {"y", taken_by("mul.Tensor", "%q, %unsqueeze_2")}},
                     parameters),
      {{{"unsqueeze", "['a.s1', 'val_1']"}}, {{"unsqueeze", {1, 2}}}, places});
}

/// The parameter that a node reads.
std::string parameter_read_by(const ir::Graph& graph, const ir::Node& node) {
  for (const ir::ParamId id : graph.param_ids())
    if (graph.param(id).value == node.inputs[0]) return graph.param(id).name.raw();
  return {};
}

std::set<std::string> ops_reading(const ir::Graph& graph, ir::ValueId value) {
  std::set<std::string> ops;
  for (const ir::NodeId id : graph.node_ids())
    if (std::ranges::find(graph.node(id).inputs, value) != graph.node(id).inputs.end()) ops.insert(graph.node(id).op);
  return ops;
}

constexpr const char *kFirst = "\"block.py\", line 4, in forward\n    x = x * self.s1.unsqueeze(-1)",
                     *kSecond = "\"block.py\", line 5, in forward\n    x = x * self.s2.unsqueeze(-1)",
                     *kMute = "\"block.py\", line 5, in forward\n    x = x * scale";

}  // namespace

TEST_CASE("rows that were looked up explain the table that their note names, and no row trains in two places") {
  const auto looked_up = [](const std::string& second, const std::vector<float>& rows = {1, 2, 3, 4, 5, 6}) {
    return import_noted(
        exported_model(
            "g (float[N,2,3] x, float[2,3] embedding, float[2,3] embedding_1) => (float[N,2,3] y) { z = "
            "Add(x, embedding) y = Add(z, embedding_1) }",
            {{"z", taken_by("add.Tensor", "%x, %embedding")}, {"y", taken_by("add.Tensor", "%z, %embedding_1")}},
            {"p.weight", "q.weight"}),
        {{{"embedding", "['p.weight', 'val_1']"}, {"embedding_1", second}},
         {{"embedding", {6, 5, 4, 3, 2, 1}}, {"embedding_1", rows}},
         {}});
  };
  const auto imported = looked_up("['q.weight', 'val_2']");
  CHECK(trained(imported) == std::set<std::string>{"embedding", "embedding_1"});
  CHECK_FALSE(reports(imported->notes, Code::kLostByExport, "taken by no node"));
  const auto separate = looked_up("['p.weight', 'val_2']");
  CHECK(trained(separate) == std::set<std::string>{"embedding", "embedding_1"});
  const auto refused = looked_up("['p.weight', 'val_2']", {3, 2, 1, 4, 5, 6});
  REQUIRE(is_refused(refused));
  CHECK(reports(refused.problems(), Code::kLostByExport, "'embedding_1': the exporter's optimiser has computed"));
  const auto repeated = looked_up("['q.weight', 'val_2']", {0, 0, 0, 0, 0, 0});
  REQUIRE(is_refused(repeated));
  CHECK(reports(repeated.problems(), Code::kLostByExport, "'embedding_1': the exporter's optimiser has looked up"));
}

TEST_CASE("rows of what was computed from a table do not train as the table does") {
  const auto looked_up = [](const std::string& note) {
    return import_noted(
        exported_model("g (float[N,2,3] x, float[2,3] embedding) => (float[N,2,3] y) { y = Add(x, embedding) }",
                       {{"y", taken_by("add.Tensor", "%x, %embedding")}},
                       {"p.weight", "p.gain", "q.weight", "buffer ids", "buffer table"}),
        {{{"embedding", note}},
         {{"embedding", {6, 5, 4, 3, 2, 1}}},
         {{"y", {"", "\"m.py\", line 2, in forward\n    return x + rows"}}}});
  };
  const std::string taken = "is taken for the numbers of the rows";
  for (const char* note : {"['ids', 'p.weight']", "['clone', 'lifted_tensor_0', 'p.weight']"}) {
    const auto imported = looked_up(note);
    CHECK(trained(imported) == std::set<std::string>{"embedding"});
    CHECK_FALSE(reports(imported->notes, Code::kLostByExport, taken));
  }
  for (const char* note : {"['add', 'arange', 'q.weight', 'val_1', 'unsqueeze_2']", "['detach', 'ids', 'q.weight']"}) {
    const auto imported = looked_up(note);
    CHECK(trained(imported) == std::set<std::string>{"embedding"});
    CHECK(reports(imported->notes, Code::kLostByExport, taken));
  }
  // What computes the numbers elsewhere may compute a table that is not nn.Embedding's, or whose numbers are a buffer.
  for (const char* note :
       {"['ids', 'p.weight', 'tanh']", "['arange', 'mul_3', 'q.weight', 'val_0']", "['ids', 'p.gain', 'p.weight']",
        "['embedding_renorm', 'ids', 'p.weight']", "['add', 'ids', 'p.weight', 'val_0']",
        "['add', 'ids', 'q.weight', 'table']", "['detach', 'ids', 'p.weight']"}) {
    const auto refused = looked_up(note);
    REQUIRE(is_refused(refused));
    CHECK(reports(refused.problems(), Code::kLostByExport,
                  "has computed 'embedding' beforehand, which 'return x + rows' reads"));
  }
}

TEST_CASE("a tensor without a name that was computed from parameters is not taken for a transposed weight") {
  const auto multiplied = [](const std::string& note) {
    return import_noted(
        exported_model("g (float[N,2,3] x, float[1,3,4] val_8) => (float[N,2,4] y) { y = MatMul(x, val_8) }",
                       {{"y", taken_by("matmul.default", "%x, %transpose")}}, {"p.weight", "p.bias", "t.weight"}),
        {{{"val_8", note}}, {}, {}});
  };
  // DeBERTa's relative positions: k(table) of each layer.
  const auto refused = multiplied("['linear_3', 'p.bias', 'p.weight', 'permute_3', 't.weight', 'val_5']");
  REQUIRE(is_refused(refused));
  CHECK(reports(refused.problems(), Code::kLostByExport, "has computed 'val_8' beforehand"));
  CHECK(multiplied("['p.weight', 'unsqueeze', 'val_5']").ok());
}

TEST_CASE("a row of zeros that was looked up may be a table's padding, which does not train") {
  const auto looked_up = [](const std::vector<float>& rows) {
    return import_noted(
        exported_model("g (float[N,2,2] x, float[2,2] embedding) => (float[N,2,2] y) { y = Add(x, embedding) }",
                       {{"y", taken_by("add.Tensor", "%x, %embedding")}}, {"t.weight", "buffer ids"}),
        {{{"embedding", "['t.weight', 'ids']"}}, {{"embedding", rows}}, {}});
  };
  CHECK(reports(looked_up({0, 0, 1, 2}).problems(), Code::kLostByExport, "padding_idx"));
  const auto drawn = looked_up({0, 1, 2, 3});
  CHECK(trained(drawn) == std::set<std::string>{"embedding"});
  CHECK(reports(drawn->notes, Code::kLostByExport, "that of a padding_idx as well"));
}

TEST_CASE("values of parameters that began alike are told apart by the lines of their calls") {
  const auto imported = merged_blocks({{"p", {"a", kFirst}}, {"q", {"a", kSecond}}, {"y", {"b", kFirst}}});
  CHECK(trained(imported) == std::set<std::string>{"a.s1", "a.s2", "b.s1"});
  for (const char* name : {"a.s1", "a.s2", "b.s1"}) {
    CHECK(shape(imported->graph, name) == "2 ");
    CHECK(elements(imported->graph, name) == std::vector<float>{1, 2});
  }
  // Where a line does not say which, the file is refused.
  CHECK(is_refused(merged_blocks({{"p", {"a", kFirst}}, {"q", {"a", kMute}}, {"y", {"b", kFirst}}})));
  CHECK(is_refused(merged_blocks({{"p", {"a", kFirst}}, {"q", {"a", kFirst}}, {"y", {"b", kFirst}}})));
  CHECK(is_refused(merged_blocks({})));
  const std::string inverse = "\"block.py\", line 5, in forward\n    x = x * torch.exp(self.s2.unsqueeze(-1))";
  CHECK(is_refused(merged_blocks({{"p", {"a", kFirst}}, {"q", {"a", inverse}}, {"y", {"b", kFirst}}})));
  // The module of the third call has no such parameter.
  CHECK(is_refused(merged_blocks({{"p", {"a", kFirst}}, {"q", {"a", kSecond}}, {"y", {"c", kFirst}}})));
}

TEST_CASE("two values of one line are those of the members on which it calls the same, in their order") {
  // torch.addcmul(bias, scale, x), of which one node reads each.
  const auto summed = [](const std::string& code, const std::string& arguments = "%view, %view_1, %x",
                         const std::string& note = "['grn.bias', 'val_1']") {
    return import_noted(
        exported_model("g (float[N,3] x, float[1,3] view) => (float[N,3] y) { p = Mul(view, x) y = Add(view, p) }",
                       {{"p", taken_by("addcmul.default", arguments)}, {"y", taken_by("addcmul.default", arguments)}},
                       {"grn.bias", "grn.scale"}),
        {{{"view", note}},
         {{"view", {0, 0, 0}}},
         {{"p", {"grn", "\"grn.py\", line 3, in forward\n    " + code}},
          {"y", {"grn", "\"grn.py\", line 3, in forward\n    " + code}}}});
  };
  const auto imported = summed("return torch.addcmul(self.bias.view(self.s), self.scale.view(self.s), x)");
  CHECK(trained(imported) == std::set<std::string>{"grn.bias", "grn.scale"});
  CHECK(count_ops(imported->graph, "Reshape") == 2);
  const ir::Graph& graph = imported->graph;
  for (const ir::NodeId id : graph.node_ids())  // the bias is added, and the scale multiplied
    if (const ir::Node& node = graph.node(id); node.op == "Reshape") {
      const std::string& name = parameter_read_by(graph, node);
      const std::set<std::string> readers = ops_reading(graph, node.outputs[0]);
      CHECK(readers == std::set<std::string>{name == "grn.bias" ? "Add" : "Mul"});
    }
  CHECK(is_refused(summed("return torch.addcmul(bias, scale, x)")));
  CHECK(is_refused(summed("return torch.addcmul(self.bias.view(self.s), self.scale.view(1, -1), x)")));
  // The line names them in the other order than they were computed in.
  CHECK(is_refused(summed("return torch.addcmul(self.scale.view(self.s), self.bias.view(self.s), x)")));
  CHECK(is_refused(
      summed("return torch.addcmul(self.bias.view(self.s), self.scale.view(self.s), x)", "%view, %view_1, %view_2")));
}

TEST_CASE("a number that was added to a parameter is that of the line of code which reads the sum") {
  const auto normed = [](const std::string& first, const std::string& second, float element) {
    return import_noted(
        exported_model("g (float[N,3] x, float[3] add_1) => (float[N,3] z) { y = Mul(x, add_1) z = Mul(y, add_1) }",
                       {{"y", taken_by("mul.Tensor", "%x, %add_1")}, {"z", taken_by("mul.Tensor", "%y, %add_2")}},
                       {"a.w", "b.w"}),
        {{{"add_1", "['a.w', 'val_1']"}},
         {{"add_1", {1, element, 0.5F}}},
         {{"y", {"a", "\"norm.py\", line " + first}}, {"z", {"b", "\"norm.py\", line " + second}}}});
  };
  const std::string line = "1, in forward\n    x = x * (1.0 + self.w.float())";
  const auto imported = normed(line, line, 1.25F);
  CHECK(trained(imported) == std::set<std::string>{"a.w", "b.w"});
  for (const char* name : {"a.w", "b.w"}) CHECK(elements(imported->graph, name) == std::vector<float>{0, 0.25F, -0.5F});
  CHECK(count_ops(imported->graph, "Add") == 2);
  // Another line may add another number, and a sum that rounds is none of this number.
  CHECK(is_refused(normed(line, "2, in forward\n    x = x * (1.0 + self.w.float())", 1.25F)));
  CHECK(is_refused(normed("1, in forward\n    x = x * w", "1, in forward\n    x = x * w", 1.25F)));
  CHECK(is_refused(normed(line, line, 1e-9F)));
}

TEST_CASE("parameters of the exporter's default file come back under their names, also in a new file") {
  const std::string path = std::string(GRAPHPIPE_SOURCE_DIR) + "/tests/data/exports/folded/model.onnx";
  ImportRequest request;
  request.spec.path = ModelText(path);
  request.spec.loss.kind = "mse";
  const auto before = import_onnx(request);
  std::set<std::string> names = {"classes", "logit_scale"};
  for (const char* block : {"blocks.0.", "blocks.1."})
    for (const char* name : {"layer_scale_1", "layer_scale_2", "kernel", "a_log", "widen", "narrow"})
      names.insert(text(block, name));
  CHECK(trained(before) == names);
  CHECK(ir::verify_graph(before->graph).ok());
  for (const char* block : {"blocks.0.", "blocks.1."}) {
    CHECK(shape(before->graph, text(block, "kernel")) == "8 1 3 ");
    CHECK(shape(before->graph, text(block, "widen")) == "12 8 ");
    CHECK(shape(before->graph, text(block, "a_log")) == "8 ");
  }
  std::map<std::string, NewTensor> tensors;
  const std::string zeros(1 << 10, '\0');
  for (const std::string& name : names) {
    const ir::TensorType& type = before->graph.value(parameter(before->graph, name).value).type;
    NewTensor& tensor = tensors[name] = {.dtype = type.dtype, .dims = {}, .bytes = {}};
    for (const ir::Dim dim : type.shape) tensor.dims.push_back(dim.factor);
    tensor.bytes = std::string_view(zeros).substr(0, static_cast<size_t>(ir::byte_size(type, Samples(1)).count));
  }
  std::set<std::string> replaced;
  const auto bytes = export_onnx(path, "", ParameterRules(), tensors, replaced);
  REQUIRE(bytes.ok());
  CHECK(replaced == names);
  const TemporaryFolder folder;
  folder.write("new.onnx", *bytes);
  request.spec.path = ModelText(folder / "new.onnx");
  const auto after = import_onnx(request);
  CHECK(trained(after) == names);
  CHECK(after->graph.node_count() == before->graph.node_count());
  CHECK_FALSE(reports(after->notes, Code::kLostByExport, "there again"));
  // Those that no output of the training needs have what the file has.
  tensors.erase("blocks.1.a_log");
  tensors.erase("blocks.0.layer_scale_2");
  replaced.clear();
  const auto partly = export_onnx(path, "", ParameterRules(), tensors, replaced);
  REQUIRE(partly.ok());
  folder.write("new.onnx", *partly);
  const auto kept = import_onnx(request);
  CHECK(trained(kept) == names);
  CHECK(elements(kept->graph, "blocks.0.layer_scale_2") == std::vector<float>(8, 0.5F));
  CHECK(elements(kept->graph, "blocks.1.a_log").at(2) == doctest::Approx(std::log(3)));
}
