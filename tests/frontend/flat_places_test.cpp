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

bool is_taken(const Result<Imported>& imported) { return imported.ok() && !is_told(imported); }

/// How the size of a row, by which rows are multiplied, is written.
const std::string kFromShape = "sizes = Shape(t) one = Constant<value_int = 1>() columns = Gather(sizes, one)";
const std::string kOwnNumber = "columns = Constant<value_int = 4>()";

/// x[:, i, j] of three rows and four columns; `flat` makes 12 rows of these. `last` computes
/// the last index from j.
Result<Imported> looked_up(const std::string& i, const std::string& j, const std::string& flat = "Flatten<axis = 2>(t)",
                           const std::string& columns = kFromShape, const std::string& last = "Identity(j)") {
  return import_text(
      "g (float[N,3,4] x) => (float[N,2] y) { t = Transpose<perm = [1, 2, 0]>(x) rows = Constant<value_ints = [12, "
      "-1]>() f = " +
      flat + " i = Constant<value_ints = " + i + ">() j = Constant<value_ints = " + j +
      ">() two = Constant<value_int = 2>() k = " + last + " " + columns +
      " r = Mul(i, columns) p = Add(k, r) g = Gather(f, p) y = Transpose<perm = [1, 0]>(g) }");
}

}  // namespace

TEST_CASE("a later index that counts from the end names another place") {
  CHECK(is_told(looked_up("[0, 1]", "[2, -1]")));
  CHECK(is_taken(looked_up("[0, 1]", "[2, 1]")));
  CHECK(is_taken(looked_up("[-1, 1]", "[2, 1]")));  // the first index may
}

TEST_CASE("so does one between the first and the last") {
  const auto looked_up_at = [](const std::string& j) {
    return import_text(R"(g (float[N,2,3,4] x) => (float[N,1] y) <int64 four = {4}, int64 twelve = {12}> {
      t = Transpose<perm = [1, 2, 3, 0]>(x)
      f = Flatten<axis = 3>(t)
      i = Constant<value_ints = [1]>()
      j = Constant<value_ints = [)" +
                       j + R"(]>()
      k = Constant<value_ints = [2]>()
      a = Mul(j, four)
      b = Add(k, a)
      c = Mul(i, twelve)
      p = Add(b, c)
      g = Gather(f, p)
      y = Transpose<perm = [1, 0]>(g) })");
  };
  CHECK(is_told(looked_up_at("-1")));
  CHECK(is_taken(looked_up_at("2")));
}

TEST_CASE("a look-up in what is not flattened is the module's own") {
  CHECK(is_taken(looked_up("[0, 1]", "[2, -1]", "Reshape(t, rows)")));
}

TEST_CASE("arithmetic of the module's own may have negative numbers") {
  CHECK(is_taken(looked_up("[0, 1]", "[0, -1]", "Flatten<axis = 2>(t)", kFromShape, "Add(j, two)")));
  CHECK(is_told(looked_up("[0, 1]", "[0, -3]", "Flatten<axis = 2>(t)", kFromShape, "Add(j, two)")));
  // Places in a table that the module has flattened itself.
  CHECK(is_taken(looked_up("[1, 2]", "[2, -1]", "Flatten<axis = 2>(t)", kOwnNumber)));
}
