// What a module computes under no_grad() stands among the rest in a file: its traces tell of it.

#include "frontend/without_gradient.h"

#include "tests/support/noted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

std::string generated(const std::string& line, int part = 42) {
  return text("\"<eval_with_key>.", part, "\", line 5, in forward\n    ", line);
}

const std::string kOwn = "\"model.py\", line 4, in forward\n    return self.student(x) - target";
const std::string kNamed = "linear = torch.ops.aten.linear.default(x, p_w);  x = p_w = None";

/// y = x v - x w, of which the second product stands in this line, and what is computed of it.
Result<Imported> import_target(const std::string& line, const std::string& rules = "",
                               const std::string& rest = "y = Sub(s, t)", const std::string& of_rest = kOwn) {
  return import_noted(
      exported_model("g (float[N,2] x, float[2,2] v, float[2,2] w) => (float[N,2] y) { s = MatMul(x, v) t = MatMul(x, "
                     "w) " +
                         rest + " }",
                     {{"s", taken_by("matmul.default", "%x, %p_v")}, {"t", taken_by("matmul.default", "%x, %p_w")}},
                     {"v", "w"}),
      {{}, {}, {{"s", {"", kOwn}}, {"t", {"", line}}, {"y", {"", of_rest}}}}, rules);
}

bool tells(const Diagnostics& notes) { return reports(notes, Code::kLostByExport, "'t': the module computes this"); }

}  // namespace

TEST_CASE("what a part without gradients computes of parameters is refused where it would train") {
  const auto imported = import_target(generated(kNamed));
  REQUIRE_FALSE(imported.ok());
  CHECK(tells(imported.problems()));
  const auto as_result = import_target(generated(kNamed), "", "u = Relu(t) y = Sub(s, u)");
  CHECK(is_refused(as_result));
}

TEST_CASE("what is computed of frozen parameters, detached or cast to integers trains in no case") {
  CHECK(import_target(generated(kNamed), "w freeze\n").ok());
  CHECK(import_target(generated(kNamed), "", "a = ArgMax<axis = 1>(t) c = Cast<to = 1>(a) y = Sub(s, c)").ok());
  CHECK(import_target(generated(kNamed), "", "f = Floor(t) y = Sub(s, f)").ok());
  CHECK(import_target(generated(kNamed), "", "u = Relu(t) f = Floor(u) y = Sub(s, f)", kOwn).ok());
}

TEST_CASE("code that numbers parameters computes under autocast, with gradients") {
  const auto imported = import_target(generated("linear = torch.ops.aten.linear.default(x, arg3_1);  arg3_1 = None"));
  REQUIRE(imported.ok());
  CHECK_FALSE(tells(imported->notes));
}

TEST_CASE("code that names no parameter may be of either: a warning says so") {
  const auto imported = import_target(generated("tanh = torch.ops.aten.tanh.default(linear);  linear = None"));
  REQUIRE(imported.ok());
  CHECK(tells(imported->notes));
}

TEST_CASE("other generated code, and code that holds the whole program, is none without gradients") {
  const auto traced = import_target(generated("linear = self.fc(x)"));
  REQUIRE(traced.ok());
  CHECK_FALSE(tells(traced->notes));
  const auto whole =
      import_noted(exported_model("g (float[N,2] x, float[2,2] w) => (float[N,2] t) { t = MatMul(x, w) }",
                                  {{"t", taken_by("matmul.default", "%x, %p_w")}}, {"w"}),
                   {{}, {}, {{"t", {"", generated(kNamed)}}}});
  REQUIRE(whole.ok());
  CHECK_FALSE(tells(whole->notes));
}
