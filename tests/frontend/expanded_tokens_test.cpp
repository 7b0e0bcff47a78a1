// Tokens and rows of tables that an exporter's optimiser repeats in a file with a fixed batch are one again.

#include <map>
#include <numeric>
#include <set>

#include "frontend/equal_parts.h"
#include "frontend/export_onnx.h"
#include "ir/verify_graph.h"
#include "tests/support/noted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

/// `times` times the same numbers.
std::vector<float> repeated(const std::vector<float>& part, int times) {
  std::vector<float> all;
  for (int i = 0; i < times; ++i) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::string sized(const std::string& parameter) { return "['" + parameter + "', 'val_1', 'val_2']"; }

/// y = cat([token, x], 1) for four samples, where the program has the token as `expand`.
Result<Imported> joined(const std::string& dims, const std::string& note, const std::vector<float>& elements,
                        const std::string& rules = "",
                        const std::vector<std::string>& parameters = {"m.cls_token", "m.table"}) {
  return import_noted(exported_model(text("g (float[4,2,3] x, float", dims,
                                          " expand) => (float y) { cat = Concat<axis = 1>(expand, x) y = Relu(cat) }"),
                                     {{"cat", taken_by("cat.default", "[%expand, %x], 1")}}, parameters),
                      {{{"expand", note}}, {{"expand", elements}}, {}}, rules);
}

/// y = x + rows, which were looked up in a table. The file may have other tensors, "<int64[2] ids = {0, 1}>".
Result<Imported> looked_up(const std::string& dims, const std::string& note, const std::vector<float>& elements,
                           const std::string& tensors = "") {
  return import_noted(
      exported_model(text("g (float[4,2,3] x, float", dims, " embedding_1) => (float[4,2,3] y) ", tensors,
                          " { y = Add(x, embedding_1) }"),
                     {{"y", taken_by("add.Tensor", "%x, %embedding_1")}}, {"table.weight", "buffer ids"}),
      {{{"embedding_1", note}}, {{"embedding_1", elements}}, {}});
}

std::string as_bytes(const std::vector<float>& elements) {
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(float)};
}

}  // namespace

TEST_CASE("elements say along which axes they repeat") {
  const std::string bytes = as_bytes({1, 2, 1, 2, 3, 4, 3, 4});
  CHECK_FALSE(has_equal_parts(bytes, {2, 2, 2}, 0, 4));
  CHECK(has_equal_parts(bytes, {2, 2, 2}, 1, 4));
  CHECK_FALSE(has_equal_parts(bytes, {2, 2, 2}, 2, 4));
  CHECK(first_parts(bytes, {2, 2, 2}, 1, 4) == as_bytes({1, 2, 3, 4}));
  CHECK(first_parts(bytes, {2, 2, 2}, 0, 4) == as_bytes({1, 2, 1, 2}));
  CHECK(has_equal_parts("", {0, 3}, 0, 4));
  CHECK(is_uniform(as_bytes({1, 1, 1}), 4));
  CHECK_FALSE(is_uniform(as_bytes({1, 1, 2}), 4));
  CHECK(is_uniform("", 4));
}

TEST_CASE("a token that is expanded for the samples of a fixed batch is one parameter, for any batch") {
  const auto imported = joined("[4,1,3]", sized("m.cls_token"), repeated({1, 2, 3}, 4));
  REQUIRE(imported.ok());
  CHECK(ir::verify_graph(imported->graph).ok());
  CHECK(trained(imported) == std::set<std::string>{"m.cls_token"});
  CHECK(shape(imported->graph, "m.cls_token") == "1 1 3 ");
  CHECK(elements(imported->graph, "m.cls_token") == std::vector<float>{1, 2, 3});
  CHECK(imported->graph.value(imported->graph.outputs()[0].value).type.shape[0] == ir::Dim::batch());
  // What is unsqueezed first has fewer axes; rows of several tokens are theirs.
  const auto tokens =
      joined("[4,2,3]", "['m.table', 'unsqueeze', 'val_0', 'val_1', 'val_2']", repeated({1, 2, 3, 4, 5, 6}, 4));
  CHECK(shape(tokens->graph, "m.table") == "2 3 ");
}

TEST_CASE("a token whose elements are all equal is known by what reads it") {
  const auto imported = joined("[4,1,3]", sized("m.cls_token"), repeated({0}, 12));
  REQUIRE(imported.ok());
  CHECK(shape(imported->graph, "m.cls_token") == "1 1 3 ");
  CHECK(shape(joined("[4,1,3]", sized("m.table"), repeated({0}, 12))->graph, "m.table") == "1 1 3 ");
  // One row may have been expanded to several.
  CHECK(is_refused(joined("[4,2,3]", sized("m.cls_token"), repeated({0}, 24))));
  const auto read_by = [](const std::string& node, const std::string& target, const std::string& arguments) {
    return import_noted(
        exported_model("g (float[4,1,3] x, float[4,1,3] expand, float[1,1,3] positions, float[3,3] w, "
                       "float[3] v) => (float y) { " +
                           node + " y = Relu(z) }",
                       {{"s", taken_by("add.Tensor", "%expand, %p_positions")}, {"z", taken_by(target, arguments)}},
                       {"m.embed_scale", "w", "v", "positions"}),
        {{{"expand", sized("m.embed_scale")}}, {{"expand", repeated({1}, 12)}}, {}});
  };
  CHECK(read_by("z = MatMul(expand, w)", "matmul.default", "%expand, %p_w").ok());
  CHECK(read_by("z = LayerNormalization(expand, v)", "layer_norm.default", "%expand, [3], %p_v").ok());
  CHECK(read_by("s = Add(expand, positions) z = MatMul(s, w)", "matmul.default", "%s, %p_w").ok());
  // One number may have been expanded to all of them.
  CHECK(is_refused(read_by("z = Mul(x, expand)", "mul.Tensor", "%x, %expand")));
  CHECK(is_refused(read_by("s = Add(x, expand) z = MatMul(s, w)", "matmul.default", "%s, %p_w")));
  CHECK(is_refused(read_by("z = Concat<axis = 2>(x, expand)", "cat.default", "[%x, %expand], 2")));
}

TEST_CASE("equal elements are said to train as a vector where the name may be one number's") {
  const auto is_told = [](const std::string& name, const std::vector<float>& elements) {
    const auto imported = joined("[4,1,3]", sized(name), elements, "", {name});
    REQUIRE(imported.ok());
    return std::ranges::any_of(imported.value().notes, [](const Diagnostic& note) {
      return note.severity == Severity::kWarning && to_line(note).find("all equal") != std::string::npos;
    });
  };
  CHECK(is_told("m.pad", repeated({0.5f}, 12)));
  CHECK_FALSE(is_told("m.cls_token", repeated({0.5f}, 12)));
  CHECK_FALSE(is_told("m.pad", repeated({1, 2, 3}, 4)));
}

TEST_CASE("a token of a file with one sample is the same, for any batch") {
  const auto joined_with_one = [](const std::string& dims, const std::vector<float>& elements) {
    return import_noted(
        exported_model(text("g (float[1,2,3] x, float", dims,
                            " expand) => (float y) { cat = Concat<axis = 1>(expand, x) y = Relu(cat) }"),
                       {{"cat", taken_by("cat.default", "[%expand, %x], 1")}}, {"m.cls_token"}),
        {{{"expand", sized("m.cls_token")}}, {{"expand", elements}}, {}});
  };
  for (const std::vector<float>& token : {std::vector<float>{1, 2, 3}, std::vector<float>{0, 0, 0}}) {
    const auto imported = joined_with_one("[1,1,3]", token);
    REQUIRE(imported.ok());
    CHECK(trained(imported) == std::set<std::string>{"m.cls_token"});
    CHECK(elements(imported->graph, "m.cls_token") == token);
    CHECK(imported->graph.value(imported->graph.outputs()[0].value).type.shape[0] == ir::Dim::batch());
  }
  CHECK(is_refused(joined_with_one("[1,2,3]", repeated({1, 2, 3}, 2))));
}

TEST_CASE("what may be no token of all samples is refused") {
  // Of another size than the batch it may be a parameter whose rows began alike.
  CHECK_FALSE(joined("[2,1,3]", sized("m.cls_token"), repeated({1, 2, 3}, 2)).ok());
  CHECK_FALSE(joined("[4,1,3]", sized("m.cls_token"), {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 4}).ok());
  CHECK(is_refused(joined("[4,2,3]", sized("m.table"), repeated({1, 2, 3}, 8))));
  CHECK(is_refused(joined("[4,1,3]", "['m.cls_token', 'm.table', 'val_1']", repeated({1, 2, 3}, 4))));
  CHECK(is_refused(joined("[4,1,3]", "['m.cls_token', 'neg', 'val_1']", repeated({1, 2, 3}, 4))));
  CHECK(is_refused(joined("[4,1,3]", "['m.cls_token', 'view', 'val_1']", repeated({1, 2, 3}, 4))));
}

TEST_CASE("what has the size that it is expanded to is the parameter itself") {
  // The optimiser notes no sizes of it; the samples of the export have rows of their own, which no other batch has.
  CHECK_FALSE(joined("[4,1,3]", "['m.cls_token']", repeated({0}, 12)).ok());
  const auto whole = joined("[1,1,3]", "['m.cls_token']", {1, 2, 3});
  CHECK_FALSE(whole.ok());  // ... and neither does one token without a batch join four
}

TEST_CASE("rows that were looked up for all samples are one each") {
  const auto everywhere = looked_up("[4,2,3]", "['table.weight', 'ids', 'val_1']", repeated({1, 2, 3}, 8));
  REQUIRE(everywhere.ok());
  CHECK(trained(everywhere) == std::set<std::string>{"embedding_1_rows"});
  CHECK(shape(everywhere->graph, "embedding_1_rows") == "1 1 3 ");
  CHECK(elements(everywhere->graph, "embedding_1_rows") == std::vector<float>{1, 2, 3});
  CHECK(reports(everywhere->notes, Code::kLostByExport, "one row of 'table.weight'"));
  CHECK(reports(everywhere->notes, Code::kLostByExport, "under the names of values"));
  const auto places = looked_up("[4,2,3]", "['table.weight', 'arange']", repeated({1, 2, 3, 4, 5, 6}, 4));
  CHECK(shape(places->graph, "embedding_1_rows") == "1 2 3 ");
  const auto apart = looked_up("[1,2,3]", "['table.weight', 'arange']", {1, 2, 3, 4, 5, 6});
  CHECK(trained(apart) == std::set<std::string>{"embedding_1"});
}

TEST_CASE("equal rows in several places are one where the file says so, and are assumed to be elsewhere") {
  const auto severity = [](const Result<Imported>& imported) {
    for (const Diagnostic& note : imported.value().notes)
      if (to_line(note).find("row of 'table.weight'") != std::string::npos) return note.severity;
    FAIL("nothing is said of the table");
    return Severity::kError;
  };
  const std::string note = "['table.weight', 'ids', 'val_1']";
  const std::vector<float> alike = repeated({1, 2, 3}, 8);
  CHECK(severity(looked_up("[4,2,3]", note, alike)) == Severity::kWarning);
  CHECK(severity(looked_up("[1,2,3]", note, repeated({1, 2, 3}, 2))) == Severity::kWarning);
  CHECK(severity(looked_up("[4,2,3]", note, repeated({1, 2, 3, 4, 5, 6}, 4))) == Severity::kNote);
  CHECK(severity(looked_up("[4,2,3]", note, alike, "<int64[4,2] ids = {1, 1, 1, 1, 1, 1, 1, 1}>")) == Severity::kNote);
  const auto different = looked_up("[4,2,3]", note, alike, "<int64[4,2] ids = {0, 1, 0, 1, 0, 1, 0, 1}>");
  CHECK((!different.ok() || shape(different->graph, "embedding_1_rows") == "1 2 3 "));
}

TEST_CASE("rows of which it is not known whether they are one are refused") {
  // As a table begins whose rows are zeros.
  CHECK(is_refused(looked_up("[4,2,3]", "['table.weight', 'ids']", repeated({0}, 24))));
  // One row in several places, but not in all, of a table with few different numbers, or by numbers of unknown calls.
  const std::vector<float> few = {1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 2, 1, 1, 1, 2, 1, 2};
  CHECK_FALSE(looked_up("[4,2,3]", "['table.weight', 'ids']", few).ok());
  const std::vector<float> many = {1, 2, 3, 4, 5, 6, 1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6, 1, 2, 3, 7, 8, 9};
  CHECK_FALSE(looked_up("[4,2,3]", "['table.weight', 'ids', 'mul']", many).ok());
  CHECK_FALSE(looked_up("[4,2,3]", "['table.weight', 'ids', 'cumsum']", many).ok());
}

TEST_CASE("a new file has the token and the rows that were trained") {
  const TemporaryFolder folder;
  const Notes notes{{{"expand", sized("m.cls_token")}, {"embedding_1", "['table.weight', 'ids']"}},
                    {{"expand", repeated({1, 2, 3}, 4)}, {"embedding_1", repeated({4, 5, 6}, 12)}},
                    {}};
  folder.write(
      "model.onnx",
      with_notes(exported_model("g (float[4,2,3] x, float[4,1,3] expand, float[4,3,3] embedding_1) => (float y) "
                                "{ cat = Concat<axis = 1>(expand, x) y = Add(cat, embedding_1) }",
                                {{"cat", taken_by("cat.default", "[%expand, %x], 1")},
                                 {"y", taken_by("add.Tensor", "%cat, %embedding_1")}},
                                {"m.cls_token", "table.weight", "buffer ids"}),
                 notes));
  const std::string token = as_bytes({7, 8, 9}), rows = as_bytes({10, 11, 12});
  const std::map<std::string, NewTensor> tensors = {
      {"m.cls_token", {.dtype = ir::DType::kFloat32, .dims = {1, 1, 3}, .bytes = token}},
      {"embedding_1_rows", {.dtype = ir::DType::kFloat32, .dims = {1, 1, 3}, .bytes = rows}}};
  std::set<std::string> replaced;
  const auto bytes = export_onnx(folder / "model.onnx", "", ParameterRules(), tensors, replaced);
  REQUIRE(bytes.ok());
  CHECK(replaced.size() == 2);
  ImportRequest request;
  request.spec.loss.kind = "mse";
  const auto after = import_bytes(*bytes, request);
  REQUIRE(after.ok());
  CHECK(elements(after->graph, "m.cls_token") == std::vector<float>{7, 8, 9});
  CHECK(elements(after->graph, "embedding_1_rows") == std::vector<float>{10, 11, 12});
}
