#include <doctest/doctest.h>

#include <algorithm>

#include "ops/op_def.h"

namespace graphpipe::ops {

TEST_CASE("every row is found by its name, is complete and has an example") {
  REQUIRE(!all_ops().empty());
  for (const OpDef* row : all_ops()) {
    CAPTURE(row->name);
    CHECK(find_op(row->name) == row);
    CHECK((row->infer != nullptr));
    CHECK((row->work != nullptr));
    CHECK((row->emit != nullptr));
    CHECK(!row->examples.empty());
  }
  CHECK(std::ranges::is_sorted(all_ops(), {}, [](const OpDef* row) { return row->name; }));
}

TEST_CASE("an unknown op has no row") {
  CHECK(find_op("") == nullptr);
  CHECK(find_op("Zz") == nullptr);
  CHECK(find_op("relu") == nullptr);
}

}  // namespace graphpipe::ops
