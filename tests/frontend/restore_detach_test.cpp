// No gradient passes what a module detaches, though the file of an exporter's optimiser has no node for it.

#include "frontend/restore_detach.h"

#include "tests/support/count_ops.h"
#include "tests/support/noted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

/// y = x w + (round(x w) - x w) and more. The call of the last node may have further ones, which compute `within`.
Result<Imported> rounded(const std::string& target, const std::string& arguments,
                         const std::string& last = "y = Add(h, d)", const std::vector<std::string>& within = {}) {
  std::map<std::string, std::string> calls = {{"h", taken_by("matmul.default", "%x, %p_w")},
                                              {"y", taken_by(target, arguments)}};
  for (const std::string& value : within) calls[value] = "y|" + taken_by(target, arguments);
  return import_noted(
      exported_model("g (float[N,2] x, float[2,2] w) => (float[N,2] y) { h = MatMul(x, w) r = Round(h) d = Sub(r, h) " +
                         last + " }",
                     calls, {"w"}),
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

TEST_CASE("what the file does not name is what the call takes detached, in every node of the call") {
  CHECK(count_ops(rounded("addcmul.default", "%h, %detach, %x, 2", "y = Add(h, d)")->graph, "Detach") == 1);
  const auto several =
      rounded("var.default", "%detach, [1], 1.0", "m = Neg(d) s = Add(d, m) y = Mul(s, s)", {"m", "s"});
  REQUIRE(count_ops(several->graph, "Detach") == 1);
  CHECK(reports(several->notes, Code::kLostByExport, "no gradient"));
  CHECK(count_ops(rounded("masked_fill.default", "%detach, %r, 2", "y = Add(r, d)")->graph, "Detach") == 1);
}

TEST_CASE("a detached input of the model blocks nothing that is computed of it") {
  const auto loss = rounded("mse_loss.default", "%h, %detach", "e = Sub(h, x) y = Mul(e, e)", {"e"});
  CHECK(count_ops(loss->graph, "Detach") == 0);
}

TEST_CASE("operands have the places of arguments only where those that are known stand there") {
  CHECK(count_ops(rounded("cat.default", "[%h, %detach], -1",
                          "c = Concat<axis = 1>(h, h) y, e = Split<axis = 1, num_outputs = 2>(c)", {"c"})
                      ->graph,
                  "Detach") == 1);
  CHECK(is_refused(rounded("addcmul.default", "%detach, %h, %r", "y = Sum(r, h, h)")));
  CHECK(rounded("mul.Tensor", "%h, %detach", "c = Constant<value = float {2.0}>() y = Mul(h, c)").ok());
}

TEST_CASE("a detached value without elements, which the exporter leaves out where it joins others, is read by none") {
  const auto filled = rounded("cat.default", "[%detach, %h], -2", "y = Identity(h)");
  REQUIRE(filled.ok());
  CHECK(count_ops(filled->graph, "Detach") == 0);
  CHECK(rounded("cat.default", "[%r, %detach, %h], 1", "y = Concat<axis = 1>(r, h)").ok());
  CHECK(is_refused(rounded("cat.default", "[%r, %detach, %h], 1", "y = Concat<axis = 1>(h, h)")));
  CHECK(is_refused(rounded("sub.Tensor", "%detach, %h", "y = Identity(h)")));
}

TEST_CASE("what may be any operand is refused") {
  CHECK(is_refused(rounded("addcmul.default", "%h, %detach, %x, 2", "y = Add(h, h)")));
  CHECK(is_refused(rounded("sub.Tensor", "%h, %detach", "t = Neg(h) y = Sub(h, t)", {"t"})));
  CHECK(rounded("addcmul.default", "%h, %d, %x, 2", "y = Add(h, d)").ok());
}
