// What an exporter's optimiser has computed from a parameter of the file is computed from it again.

#include "frontend/recompute_folded.h"

#include "tests/support/count_ops.h"
#include "tests/support/noted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

const std::string kLine = "\"model.py\", line 4, in forward\n    distance = x @ self.codes.t() + squares";

/// "x @ codes.t() + (codes ** 2).sum(1)", of the sums and the note.
Result<Imported> import_distances(const std::vector<float>& sums,
                                  const std::string& note = "['codes', 'pow_2', 'val_3']",
                                  const std::string& argument = "sum_2", const std::string& line = kLine) {
  return import_noted(
      exported_model("g (float[N,3] x, float[2,3] codes, float[2] sum_2) => (float[N,2] y) { t = Transpose(codes) p = "
                     "MatMul(x, t) y = Add(p, sum_2) }",
                     {{"p", taken_by("mm.default", "%x, %t")}, {"y", taken_by("add.Tensor", text("%p, %", argument))}},
                     {"codes", "other"}),
      {{{"sum_2", note}}, {{"codes", {1, 2, 3, 4, 5, 6}}, {"sum_2", sums}}, {{"y", {"", line}}}});
}

bool is_computed_again(const Result<Imported>& imported) {
  return imported.ok() && count_ops(imported->graph, "ReduceSum") == 1 &&
         trained(imported) == std::set<std::string>{"codes"};
}

/// "x * m + y * (1 - m)" of the elements of m and of the difference.
Result<Imported> import_mixture(const std::vector<float>& shares, const std::vector<float>& rest) {
  return import_noted(
      exported_model("g (float[N,2] x, float[2] m, float[2] rsub) => (float[N,2] y) { r = Relu(x) p = Mul(x, m) q = "
                     "Mul(r, rsub) y = Add(p, q) }",
                     {{"p", taken_by("mul.Tensor", "%x, %p_m")}, {"q", taken_by("mul.Tensor", "%r, %rsub")}}, {"m"}),
      {{{"rsub", "['m', 'scalar_tensor_default', 'val_1']"}}, {{"m", shares}, {"rsub", rest}}, {}});
}

}  // namespace

TEST_CASE("sums of a codebook's squares follow it") {
  CHECK(is_computed_again(import_distances({14, 77})));
  CHECK(is_computed_again(import_distances({14, 77}, "['codes', 'mul_7', 'val_3']")));
}

TEST_CASE("sums that another line reads may have no gradient: a warning says so where one would reach them") {
  const auto is_warned = [](const Result<Imported>& imported) {
    return imported.ok() && reports(imported->notes, Code::kLostByExport, "warning[lost-by-export] 'sum_2'");
  };
  CHECK(is_warned(import_distances({14, 77})));
  CHECK_FALSE(is_warned(import_distances({14, 77}, "['codes', 'pow_2', 'val_3']", "sum_2",
                                         "\"model.py\", line 4, in forward\n    return x @ w.t() + (w ** 2).sum(1)")));
  const auto places = import_noted(
      exported_model("g (float[N,3] x, float[2,3] codes, float[2] sum_2) => (float[N,3] y) { t = Transpose(codes) p = "
                     "MatMul(x, t) d = Add(p, sum_2) i = ArgMin<axis = 1, keepdims = 0>(d) y = Gather(codes, i) }",
                     {{"d", taken_by("add.Tensor", "%p, %sum_2")}}, {"codes"}),
      {{{"sum_2", "['codes', 'pow_2', 'val_3']"}},
       {{"codes", {1, 2, 3, 4, 5, 6}}, {"sum_2", {14, 77}}},
       {{"d", {"", kLine}}}});
  REQUIRE(places.ok());
  CHECK_FALSE(is_warned(places));
}

TEST_CASE("sums that the elements or the note do not show to be of squares are refused") {
  const auto refused = [](const Result<Imported>& imported) {
    return !imported.ok() && reports(imported.problems(), Code::kLostByExport, "'sum_2': the exporter's optimiser has");
  };
  CHECK(refused(import_distances({14, 78})));
  CHECK(refused(import_distances({6, 15})));
  CHECK(refused(import_distances({14, 77}, "['codes', 'abs_1', 'pow_2']")));
  CHECK(refused(import_distances({14, 77}, "['codes', 'val_3']")));
  CHECK_FALSE(is_computed_again(import_distances({14, 77}, "['codes', 'other', 'pow_2']")));
}

TEST_CASE("a tensor that stands for another value too, or may have been detached, is not computed again") {
  CHECK_FALSE(is_computed_again(import_distances({14, 77}, "['codes', 'pow_2', 'val_3']", "sum_3")));
  CHECK_FALSE(is_computed_again(import_distances({14, 77}, "['codes', 'pow_2', 'val_3']", "sum_2",
                                                 "\"model.py\", line 4, in forward\n    d = p + s.detach()")));
}

TEST_CASE("a difference from one follows its parameter") {
  const auto imported = import_mixture({0.25F, 0.5F}, {0.75F, 0.5F});
  REQUIRE(imported.ok());
  CHECK(count_ops(imported->graph, "Sub") == 1);
  CHECK(trained(imported) == std::set<std::string>{"m"});
  CHECK_FALSE(import_mixture({0.5F, 0.5F}, {0.5F, 0.5F}).ok());
  CHECK_FALSE(import_mixture({0.25F, 0.5F}, {0.75F, 0.25F}).ok());
}

TEST_CASE("a difference from a parameter in another shape follows it") {
  const auto import_viewed = [](const std::string& note) {
    return import_noted(
        exported_model(
            "g (float[N,3,2] x, float[2] m, float[1,2] sub_1) => (float[N,3,2] y) { p = Mul(x, m) r = Relu(x) "
            "q = Mul(r, sub_1) y = Add(p, q) }",
            {{"p", taken_by("mul.Tensor", "%x, %p_m")}, {"q", taken_by("mul.Tensor", "%r, %sub_1")}}, {"m"}),
        {{{"sub_1", note}}, {{"m", {0.25F, 0.5F}}, {"sub_1", {0.75F, 0.5F}}}, {}});
  };
  const auto imported = import_viewed("['m', 'val_2', 'view_4']");
  REQUIRE(imported.ok());
  CHECK(count_ops(imported->graph, "Reshape") == 1);
  CHECK(count_ops(imported->graph, "Sub") == 1);
  CHECK(trained(imported) == std::set<std::string>{"m"});
  CHECK_FALSE(import_viewed("['flip', 'm', 'val_2']").ok());
}

TEST_CASE("what a sigmoid leaves of one follows its parameter") {
  const auto import_gate = [](const std::vector<float>& rest, const std::string& note, const std::string& line) {
    return import_noted(
        exported_model("g (float[N,2] x, float[2] sigmoid, float[2] sub_1) => (float[N,2] y) { r = Relu(x) p = Mul(x, "
                       "sigmoid) q = Mul(r, sub_1) y = Add(p, q) }",
                       {{"p", taken_by("mul.Tensor", "%x, %sigmoid")}, {"q", taken_by("mul.Tensor", "%r, %sub_1")}},
                       {"m"}),
        {{{"sigmoid", "['m']"}, {"sub_1", note}},
         {{"sigmoid", {0.25F, 0.5F}}, {"sub_1", rest}},
         {{"p", {"", "\"model.py\", line 4, in forward\n    " + line}},
          {"q", {"", "\"model.py\", line 4, in forward\n    " + line}}}});
  };
  const std::string note = "['m', 'scalar_tensor_default', 'sigmoid', 'val_2']";
  const std::string line = "y = x * torch.sigmoid(self.m) + r * (1 - torch.sigmoid(self.m))";
  const auto imported = import_gate({0.75F, 0.5F}, note, line);
  REQUIRE(imported.ok());
  CHECK(count_ops(imported->graph, "Sigmoid") == 2);
  CHECK(count_ops(imported->graph, "Sub") == 1);
  CHECK(trained(imported) == std::set<std::string>{"m"});
  CHECK_FALSE(reports(imported->notes, Code::kLostByExport, "warning[lost-by-export] 'sub_1'"));
  CHECK(import_gate({0.75F, 0.5F}, "['m', 'scalar_tensor_default', 'sigmoid', 'val_2', 'view_4']", line).ok());
  const auto elsewhere = import_gate({0.75F, 0.5F}, note, "y = x * share + r * rest");
  REQUIRE(elsewhere.ok());
  CHECK(reports(elsewhere->notes, Code::kLostByExport, "warning[lost-by-export]"));
  CHECK_FALSE(import_gate({0.75F, 0.75F}, note, line).ok());
  CHECK_FALSE(import_gate({0.75F, 0.5F}, "['m', 'exp', 'sigmoid']", line).ok());
}
