// Parts of a parameter that were cut out beforehand train.

#include "frontend/restore_parts.h"

#include <set>

#include "tests/support/noted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

constexpr const char *kFirstSlice = "['p', 'val_1', 'val_2']", *kSecondSlice = "['p', 'unsqueeze', 'val_3']";

/// y = (x + slice_1) * slice_2, both of p.
Result<Imported> cut_from(const std::vector<float>& first, const std::vector<float>& second,
                          const std::string& note = kSecondSlice, const std::string& taken = "slice_2",
                          const std::string& rules = "") {
  return import_noted(
      exported_model("g (float[N,2,3] x, float[2,3] slice_1, float[3] slice_2) => (float[N,2,3] y) { z = Add(x, "
                     "slice_1) y = Mul(z, slice_2) }",
                     {{"z", taken_by("add.Tensor", "%x, %slice_1")}, {"y", taken_by("mul.Tensor", "%z, %" + taken)}},
                     {"p", "q", "buffer b"}),
      {{{"slice_1", kFirstSlice}, {"slice_2", note}}, {{"slice_1", first}, {"slice_2", second}}, {}}, rules);
}

}  // namespace

TEST_CASE("parts of a parameter train under names of their own where no element stands in two") {
  const auto imported = cut_from({1, 2, 3, 4, 5, 6}, {7, 8, 9});
  REQUIRE(imported.ok());
  CHECK(trained(imported) == std::set<std::string>{"slice_1_part", "slice_2_part"});
  CHECK(elements(imported->graph, "slice_2_part") == std::vector<float>{7, 8, 9});
  CHECK(reports(imported->notes, Code::kLostByExport, "cut out beforehand train under the names of values"));
  CHECK_FALSE(reports(imported->notes, Code::kLostByExport, "'p': this parameter of the module is taken by no"));
}

TEST_CASE("parts that may have elements of one another are refused, and what was computed from the parameter") {
  CHECK(is_refused(cut_from({1, 2, 3, 4, 5, 6}, {6, 7, 8})));
  CHECK(is_refused(cut_from({0, 0, 0, 0, 0, 0}, {1, 2, 3})));
  for (const char* note : {"['p', 'sin']", "['p', 'expand', 'val_3']", "['p', 'q']", "['p', 'b']"})
    CHECK(is_refused(cut_from({1, 2, 3, 4, 5, 6}, {7, 8, 9}, note)));
  // The maximum of a parameter has the name that a part of several has, and so have the results of a norm.
  for (const char* note : {"['p', 'getitem', 'view']", "['p', 'unbind']"})
    CHECK(is_refused(cut_from({1, 2, 3, 4, 5, 6}, {7, 8, 9}, note)));
  // Read as the value of another parameter, which began alike.
  CHECK(is_refused(cut_from({1, 2, 3, 4, 5, 6}, {7, 8, 9}, kSecondSlice, "slice_3")));
  CHECK_FALSE(
      trained(cut_from({1, 2, 3, 4, 5, 6}, {7, 8, 9}, kSecondSlice, "slice_2", "p tie q\n")).contains("slice_1_part"));
}
