#include <doctest/doctest.h>

#include "tests/support/one_node.h"

namespace graphpipe::ops {
namespace {

using testing::f32;
using testing::fixed;
using testing::i64;
using testing::OneNode;
using Ints = std::vector<int64_t>;
constexpr ir::Dim kBatch = ir::Dim::batch();

ir::Value only(const OneNode& one) {
  auto result = one.infer();
  REQUIRE(result.ok());
  return result->front();
}

Code refusal(const OneNode& one) {
  auto result = one.infer();
  REQUIRE(!result.ok());
  CHECK(result.problems().front().origin == ModelText("/layer/node"));
  CHECK(!result.problems().front().hint.empty());
  return result.problems().front().code;
}

ir::Value reshaped(ir::Shape from, ir::Shape to) {
  return only(OneNode("Reshape", {f32(std::move(from))}, {{"shape", std::move(to)}}));
}

TEST_CASE("Reshape keeps the batch axis exactly where a sample stays a slice of it") {
  CHECK(reshaped({kBatch, fixed(6), fixed(4)}, {ir::Dim::batch(6), fixed(4)}).batch_axis == 0);
  CHECK(reshaped({ir::Dim::batch(6), fixed(4)}, {kBatch, fixed(6), fixed(4)}).batch_axis == 0);
  CHECK(reshaped({fixed(3), kBatch, fixed(8)}, {fixed(3), ir::Dim::batch(2), fixed(4)}).batch_axis == 1);
  CHECK(reshaped({kBatch, fixed(4)}, {fixed(1), kBatch, fixed(4)}).batch_axis == 1);
  CHECK(reshaped({fixed(3), kBatch, fixed(8)}, {ir::Dim::batch(3), fixed(8)}).batch == ir::BatchKind::kMixed);
  CHECK(reshaped({kBatch, fixed(6)}, {fixed(2), ir::Dim::batch(3)}).batch == ir::BatchKind::kMixed);
  CHECK(reshaped({fixed(6)}, {fixed(2), fixed(3)}).batch == ir::BatchKind::kNone);
}

TEST_CASE("Reshape fills in 0 and -1 and refuses another number of elements") {
  CHECK(reshaped({kBatch, fixed(6), fixed(4)}, {fixed(0), fixed(-1), fixed(8)}).type.shape ==
        ir::Shape{kBatch, fixed(3), fixed(8)});
  CHECK(reshaped({kBatch, fixed(6)}, {fixed(-1), fixed(2)}).type.shape == ir::Shape{ir::Dim::batch(3), fixed(2)});
  CHECK(refusal(OneNode("Reshape", {f32({fixed(6)})}, {{"shape", ir::Shape{fixed(5)}}})) == Code::kBadModel);
  CHECK(refusal(OneNode("Reshape", {f32({kBatch, fixed(6)})}, {{"shape", ir::Shape{fixed(12)}}})) ==
        Code::kBatchNotFound);
  CHECK(refusal(OneNode("Reshape", {f32({fixed(6)})}, {{"shape", ir::Shape{fixed(-1), fixed(-1)}}})) ==
        Code::kBadModel);
  CHECK(refusal(OneNode("Reshape", {f32({fixed(6)})}, {{"shape", ir::Shape{fixed(-1), fixed(4)}}})) == Code::kBadModel);
}

TEST_CASE("Transpose moves the batch axis; Unsqueeze and Squeeze shift it") {
  const ir::Value turned = only(OneNode("Transpose", {f32({kBatch, fixed(2), fixed(3)})}, {{"perm", Ints{2, 0, 1}}}));
  CHECK(turned.type.shape == ir::Shape{fixed(3), kBatch, fixed(2)});
  CHECK(turned.batch_axis == 1);
  CHECK(only(OneNode("Transpose", {f32({kBatch, fixed(2)})})).batch_axis == 1);
  CHECK(only(OneNode("Unsqueeze", {f32({kBatch, fixed(2)})}, {{"axes", Ints{0, 1}}})).batch_axis == 2);
  CHECK(only(OneNode("Squeeze", {f32({fixed(1), kBatch, fixed(1)})}, {{"axes", Ints{0}}})).batch_axis == 0);
  CHECK(refusal(OneNode("Transpose", {f32({kBatch, fixed(2)})}, {{"perm", Ints{0, 0}}})) == Code::kBadModel);
  CHECK(refusal(OneNode("Squeeze", {f32({kBatch, fixed(2)})}, {{"axes", Ints{0}}})) == Code::kBadModel);
}

TEST_CASE("Concat joins fixed axes, mixes samples along the batch, and refuses rows beside samples") {
  const auto concat = [](ir::Shape a, ir::Shape b, int64_t axis) {
    return OneNode("Concat", {f32(std::move(a)), f32(std::move(b))}, {{"axis", axis}});
  };
  CHECK(only(concat({kBatch, fixed(2)}, {kBatch, fixed(3)}, 1)).type.shape == ir::Shape{kBatch, fixed(5)});
  CHECK(only(concat({kBatch, fixed(2)}, {kBatch, fixed(2)}, 0)).batch == ir::BatchKind::kMixed);
  CHECK(refusal(concat({kBatch, fixed(2)}, {fixed(1), fixed(2)}, 0)) == Code::kMixesSamples);
  CHECK(refusal(concat({kBatch, fixed(2)}, {fixed(8), fixed(3)}, 1)) == Code::kBadModel);
}

TEST_CASE("cutting along the batch is refused, keeping it whole is not") {
  const auto slice = [](Ints starts, Ints ends, Ints axes) {
    return OneNode("Slice", {f32({kBatch, fixed(6)})}, {{"starts", starts}, {"ends", ends}, {"axes", axes}});
  };
  CHECK(only(slice({0, 1}, {INT64_MAX, -1}, {0, 1})).type.shape == ir::Shape{kBatch, fixed(4)});
  CHECK(only(slice({5}, {2}, {1})).type.shape == ir::Shape{kBatch, fixed(0)});
  CHECK(refusal(slice({0}, {1}, {0})) == Code::kMixesSamples);
  CHECK(refusal(slice({0, 0}, {1, 1}, {1, -1})) == Code::kBadModel);
  CHECK(refusal(OneNode("Split", {f32({kBatch, fixed(6)})}, {{"axis", int64_t{0}}, {"sizes", Ints{1, 1}}})) ==
        Code::kMixesSamples);
  CHECK(refusal(OneNode("Split", {f32({kBatch, fixed(6)})}, {{"axis", int64_t{1}}, {"sizes", Ints{4, 4}}})) ==
        Code::kBadModel);
  CHECK(refusal(OneNode("Pad", {f32({kBatch, fixed(6)})}, {{"pads", Ints{1, 0, 0, 0}}})) == Code::kMixesSamples);
}

TEST_CASE("Slice counts rows as ONNX does") {
  const auto rows = [](int64_t start, int64_t end, int64_t step) {
    const OneNode one("Slice", {f32({fixed(7)})},
                      {{"starts", Ints{start}}, {"ends", Ints{end}}, {"axes", Ints{0}}, {"steps", Ints{step}}});
    return only(one).type.shape.front().factor;
  };
  CHECK(rows(0, 7, 2) == 4);
  CHECK(rows(-3, 100, 1) == 3);
  CHECK(rows(6, INT64_MIN, -1) == 7);
  CHECK(rows(-1, -8, -3) == 3);
  CHECK(rows(2, 2, -1) == 0);
  CHECK(rows(3, 1, 1) == 0);
  CHECK(rows(100, INT64_MIN, INT64_MIN) == 1);
}

TEST_CASE("Gather with batched indices into a weight is batched as the indices are") {
  const ir::Value rows =
      only(OneNode("Gather", {f32({fixed(100), fixed(8)}), i64({kBatch, fixed(7)})}, {{"axis", int64_t{0}}}));
  CHECK(rows.type.shape == ir::Shape{kBatch, fixed(7), fixed(8)});
  CHECK(rows.batch_axis == 0);
  const auto batched = [](int64_t axis, ir::Shape indices) {
    return only(OneNode("Gather", {f32({kBatch, fixed(5)}), i64(std::move(indices))}, {{"axis", axis}}));
  };
  CHECK(batched(1, {}).batch_axis == 0);
  CHECK(batched(0, {fixed(2)}).batch == ir::BatchKind::kMixed);
  CHECK(batched(0, {kBatch}).batch == ir::BatchKind::kMixed);
  CHECK(batched(1, {kBatch}).batch == ir::BatchKind::kMixed);
}

TEST_CASE("GatherND keeps samples apart where the batch is among batch_dims") {
  const auto look_up = [](int64_t shared, int64_t width) {
    return only(OneNode("GatherND", {f32({kBatch, fixed(5), fixed(3)}), i64({kBatch, fixed(width)})},
                        {{"batch_dims", shared}}));
  };
  CHECK(look_up(1, 1).batch_axis == 0);
  CHECK(look_up(1, 1).type.shape == ir::Shape{kBatch, fixed(3)});
  CHECK(look_up(0, 2).batch == ir::BatchKind::kMixed);
}

TEST_CASE("reductions, running sums and positions over the batch mix samples") {
  const auto sum = [](Ints axes) { return only(OneNode("ReduceSum", {f32({kBatch, fixed(3)})}, {{"axes", axes}})); };
  CHECK(sum({1}).batch_axis == 0);
  CHECK(sum({0}).batch == ir::BatchKind::kMixed);
  CHECK(sum({}).batch == ir::BatchKind::kMixed);
  CHECK(only(OneNode("CumSum", {f32({kBatch, fixed(3)})}, {{"axis", int64_t{0}}})).batch == ir::BatchKind::kMixed);
  CHECK(only(OneNode("CumSum", {f32({kBatch, fixed(3)})}, {{"axis", int64_t{1}}})).batch_axis == 0);
  CHECK(only(OneNode("Iota", {}, {{"shape", ir::Shape{kBatch}}})).batch == ir::BatchKind::kMixed);
  CHECK(only(OneNode("Iota", {}, {{"shape", ir::Shape{fixed(4)}}})).batch == ir::BatchKind::kNone);
  CHECK(only(OneNode("Full", {}, {{"shape", ir::Shape{kBatch, fixed(4)}}})).batch_axis == 0);
}

TEST_CASE("binary ops join batch kinds; a similarity of all pairs is mixed") {
  const auto add = [](ir::Shape a, ir::Shape b) { return OneNode("Add", {f32(std::move(a)), f32(std::move(b))}); };
  CHECK(only(add({kBatch, fixed(3)}, {fixed(3)})).batch_axis == 0);
  CHECK(only(add({fixed(3)}, {fixed(2), kBatch, fixed(1)})).batch_axis == 1);
  CHECK(only(add({kBatch, fixed(1)}, {fixed(1), kBatch})).batch == ir::BatchKind::kMixed);
  CHECK(only(add({fixed(3)}, {})).batch == ir::BatchKind::kNone);
  CHECK(refusal(OneNode("Add", {f32({kBatch}), i64({kBatch})})) == Code::kBadModel);
  CHECK(only(OneNode("Less", {f32({kBatch}), f32({})})).type.dtype == ir::DType::kBool);
}

}  // namespace
}  // namespace graphpipe::ops
