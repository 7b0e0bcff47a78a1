// Sums x + (y - x), of which an exporter has lost the detach.

#include "frontend/straight_through.h"

#include "tests/support/noted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

/// A model that rounds h = x w; `calls` as the exporter notes them, if any.
Result<Imported> rounding(const std::string& nodes, const std::map<std::string, std::string>& calls = {},
                          bool accepts = false) {
  ImportRequest request;
  request.spec.loss.kind = "mse";
  request.spec.accepts_losses = accepts;
  return import_bytes(
      exported_model("g (float[N,2] x, float[2,2] w) => (float[N,2] y) { h = MatMul(x, w) r = Round(h) " + nodes + " }",
                     calls, {"w"}),
      request);
}

bool is_told(const Result<Imported>& imported) {
  return reports(imported.ok() ? imported->notes : imported.problems(), Code::kLostByExport, "straight-through");
}

}  // namespace

TEST_CASE("a sum that is one of its own operands is refused, unless the user accepts it") {
  for (const char* const nodes :
       {"d = Sub(r, h) y = Add(h, d)", "d = Sub(r, h) y = Add(d, h)", "d = Sub(h, r) y = Sub(h, d)"}) {
    CAPTURE(nodes);
    const auto refused = rounding(nodes);
    CHECK(!refused.ok());
    CHECK(is_told(refused));
    const auto accepted = rounding(nodes, {}, true);
    CHECK(accepted.ok());
    CHECK(is_told(accepted));
  }
}

TEST_CASE("other sums and differences are taken") {
  for (const char* const nodes :
       {"d = Sub(h, r) y = Add(h, d)", "d = Sub(r, h) y = Add(r, d)", "d = Sub(r, h) y = Sub(h, d)",
        "d = Sub(h, h) y = Add(h, d)", "d = Sub(r, h) e = Mul(d, r) y = Add(h, e)"}) {
    CAPTURE(nodes);
    const auto taken = rounding(nodes);
    CHECK(taken.ok());
    CHECK(!is_told(taken));
  }
}

TEST_CASE("whole numbers have no gradient") {
  const auto taken = import_text(R"(g (int64[N,3] a, float[N,3] x) => (float[N,3] y) {
    one = Constant<value_int = 1>()
    b = Add(a, one)
    d = Sub(b, a)
    c = Add(a, d)
    f = Cast<to = 1>(c)
    y = Add(x, f) })");
  REQUIRE(taken.ok());
  CHECK(!is_told(taken));
}

TEST_CASE("what the calls of the nodes say is no error") {
  const std::string sum = "d = Sub(r, h) y = Add(h, d)",
                    difference = "sub_3|" + taken_by("sub.Tensor", "%round_1, %mm");
  const auto said = rounding(sum, {{"d", difference}, {"y", "add_1|" + taken_by("add.Tensor", "%mm, %sub_3")}});
  REQUIRE(said.ok());
  CHECK(is_told(said));  // it may have computed the difference under no_grad()
  CHECK(reports(said->notes, Code::kLostByExport, "the file says nothing"));
  const auto cloned = rounding(sum, {{"d", difference}, {"y", "add_1|" + taken_by("add.Tensor", "%mm, %clone_2")}});
  CHECK(!cloned.ok());
  CHECK(is_told(cloned));
}
