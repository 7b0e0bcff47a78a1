// Indices of several axes that TorchScript has made one of.

#include "frontend/flat_places.h"

#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using graphpipe::testing::import_text;
using graphpipe::testing::reports;

namespace {

bool is_told(const Result<Imported>& imported) {
  return reports(imported.ok() ? imported->notes : imported.problems(), Code::kLostByExport, "flattened tensor");
}

/// x[:, i, j] of three rows and four columns; the rows alone of a table if `flat` is another operator.
Result<Imported> looked_up(const std::string& i, const std::string& j,
                           const std::string& flat = "Flatten<axis = 2>(t)") {
  return import_text("g (float[N,3,4] x) => (float[N,2] y) { t = Transpose<perm = [1, 2, 0]>(x) f = " + flat +
                     " i = Constant<value_ints = " + i + ">() j = Constant<value_ints = " + j +
                     ">() columns = Constant<value_int = 4>() r = Mul(i, columns) p = Add(j, r) g = Gather(f, p) y = "
                     "Transpose<perm = [1, 0]>(g) }");
}

}  // namespace

TEST_CASE("a later index that counts from the end names another place") {
  CHECK(is_told(looked_up("[0, 1]", "[2, -1]")));
  CHECK(!is_told(looked_up("[0, 1]", "[2, 1]")));
  CHECK(!is_told(looked_up("[-1, 1]", "[2, 1]")));  // the first index may
}

TEST_CASE("so does one between the first and the last") {
  const auto told = [](const std::string& j) {
    return is_told(import_text(R"(g (float[N,2,3,4] x) => (float[N,1] y) {
      t = Transpose<perm = [1, 2, 3, 0]>(x)
      f = Flatten<axis = 3>(t)
      i = Constant<value_ints = [1]>()
      j = Constant<value_ints = [)" +
                               j + R"(]>()
      k = Constant<value_ints = [2]>()
      four = Constant<value_int = 4>()
      twelve = Constant<value_int = 12>()
      a = Mul(j, four)
      b = Add(k, a)
      c = Mul(i, twelve)
      p = Add(b, c)
      g = Gather(f, p)
      y = Transpose<perm = [1, 0]>(g) })"));
  };
  CHECK(told("-1"));
  CHECK(!told("2"));
}

TEST_CASE("a look-up in what is not flattened is the module's own") {
  CHECK(!is_told(looked_up("[0, 1]", "[2, -1]", "Identity(x)")));
}
