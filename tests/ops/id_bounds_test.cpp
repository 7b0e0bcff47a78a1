// The integers that look-ups take.

#include <doctest/doctest.h>

#include "tests/support/one_node.h"

using namespace graphpipe;
using namespace graphpipe::testing;

namespace {

wire::IdBounds ids_of(const std::string& op, const ir::Attributes& attributes, size_t input = 1) {
  const OneNode node(op, {f32({fixed(5), fixed(2)}), i64({ir::Dim::batch()})}, attributes);
  return ops::find_op(op)->ids(ops::NodeView(node.graph, node.node), input);
}

}  // namespace

TEST_CASE(
    "a look-up takes the rows of its table, also counted from the end, but as nn.Embedding from the first alone") {
  for (const char* op : {"Gather", "GatherElements"})
    CHECK(ids_of(op, {{"axis", int64_t{0}}}) == wire::IdBounds{.low = -5, .high = 5});
  CHECK(ids_of("Gather", {{"axis", int64_t{-1}}}) == wire::IdBounds{.low = -2, .high = 2});
  const wire::IdBounds embedding = ids_of("Gather", {{"axis", int64_t{0}}, {"from_first_row", int64_t{1}}});
  CHECK(embedding == wire::IdBounds{.low = 0, .high = 5});
  CHECK_FALSE(embedding.hold(-1));
  CHECK_FALSE(ids_of("Gather", {{"axis", int64_t{0}}}, 0).bounded());
}
