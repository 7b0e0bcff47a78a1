// Tensors that an exporter widens before it repeats them have the names of the values that the module repeats.

#include "frontend/name_repeated.h"

#include "tests/support/noted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

/// y = cat([queries.unsqueeze(0).repeat(n, 1, 1), x], 1), where the optimiser has computed what is repeated.
Result<Imported> queries(const std::string& dims, const std::string& note, const std::string& value = "unsqueeze",
                         const std::string& target = "repeat.default") {
  return import_noted(
      exported_model(
          text("g (float[N,2,3] x, float", dims,
               " val_6) => (float y) <int64[1] one = {1}, int64[1] first = {0}> { shape = Shape(x) n = "
               "Gather(shape, first) times = Concat<axis = 0>(n, one, one) r = Tile(val_6, times) y = "
               "Concat<axis = 1>(r, x) }"),
          {{"r", taken_by(target, text("%", value, ", [%n, 1, 1]"))}, {"y", taken_by("cat.default", "[%r, %x], 1")}},
          {"queries"}),
      {{{"val_6", note}}, {{"val_6", {1, 2, 3, 4, 5, 6}}}, {}});
}

constexpr const char* kNote = "['queries', 'unsqueeze', 'val_4', 'val_5']";

}  // namespace

TEST_CASE("a parameter that is unsqueezed and repeated trains under its name") {
  const auto imported = queries("[1,2,3]", kNote);
  REQUIRE(imported.ok());
  CHECK(trained(imported) == std::set<std::string>{"queries"});
  CHECK(shape(imported->graph, "queries") == "2 3 ");
  CHECK(elements(imported->graph, "queries") == std::vector<float>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("what may have been computed otherwise is not taken for the parameter") {
  const auto is_taken = [](const Result<Imported>& imported) {
    return imported.ok() && trained(imported).contains("queries");
  };
  CHECK_FALSE(is_taken(queries("[1,2,3]", kNote, "unsqueeze_1")));
  CHECK_FALSE(is_taken(queries("[1,2,3]", "['queries', 'unsqueeze', 'mul', 'val_5']")));
  CHECK_FALSE(is_taken(queries("[1,2,3]", kNote, "unsqueeze", "tile.default")));
  // Which of the axes of size 1 the parameter has is not said.
  CHECK(is_taken(queries("[1,2,3]", kNote)));
  CHECK_FALSE(is_taken(queries("[1,2,3]", "['queries', 'unsqueeze', 'unsqueeze_1', 'val_5']")));
}
