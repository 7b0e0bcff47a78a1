// No gradient passes what a module detaches, though the file of an exporter's optimiser has no node for it.

#include "frontend/restore_detach.h"

#include "tests/support/count_ops.h"
#include "tests/support/noted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

/// y = x w + (round(x w) - x w) and more.
Result<Imported> rounded(const std::string& target, const std::string& arguments,
                         const std::string& last = "y = Add(h, d)") {
  return import_noted(
      exported_model("g (float[N,2] x, float[2,2] w) => (float[N,2] y) { h = MatMul(x, w) r = Round(h) d = Sub(r, h) " +
                         last + " }",
                     {{"h", taken_by("matmul.default", "%x, %p_w")}, {"y", taken_by(target, arguments)}}, {"w"}),
      {});
}

}  // namespace

TEST_CASE("what a call takes detached is detached, wherever the place of the operand says which it is") {
  const auto through = rounded("add.Tensor", "%h, %detach");
  CHECK(count_ops(through->graph, "Detach") == 1);
  CHECK(reports(through->notes, Code::kLostByExport, "no gradient"));
  CHECK(count_ops(rounded("linear.default", "%detach_1, %p_w", "y = MatMul(d, w)")->graph, "Detach") == 1);
  CHECK(count_ops(rounded("mul.Tensor", "%detach, %h", "y = Mul(h, h)")->graph, "Detach") == 1);
  CHECK(count_ops(rounded("add.Tensor", "%h, %sub")->graph, "Detach") == 0);
}

TEST_CASE("what may be any operand is refused") {
  CHECK(is_refused(rounded("addcmul.default", "%h, %detach, %x, 2", "y = Add(h, d)")));
  CHECK(rounded("addcmul.default", "%h, %d, %x, 2", "y = Add(h, d)").ok());
}
