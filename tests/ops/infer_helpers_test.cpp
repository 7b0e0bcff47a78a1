#include "ops/infer_helpers.h"

#include <doctest/doctest.h>

#include "tests/support/one_node.h"

namespace graphpipe::ops {
namespace {

using testing::f32;
using testing::fixed;
using testing::i64;
using testing::OneNode;
constexpr ir::Dim kB = ir::Dim::batch();

NodeView view(const OneNode& one) { return NodeView(one.graph, one.node); }

TEST_CASE("dims multiply and divide as polynomials, and refuse what overflows") {
  CHECK(multiply(ir::Dim{4, 1}, fixed(3)) == ir::Dim{12, 1});
  CHECK(multiply(kB, kB) == ir::Dim{1, 2});
  CHECK(!multiply(fixed(int64_t{1} << 40), fixed(int64_t{1} << 20)));
  CHECK(!multiply(fixed(-1), fixed(2)));
  CHECK(divide(ir::Dim{12, 1}, fixed(4)) == ir::Dim{3, 1});
  CHECK(divide(ir::Dim{12, 1}, ir::Dim{4, 1}) == fixed(3));
  CHECK(!divide(fixed(12), kB));
  CHECK(!divide(fixed(12), fixed(5)));
  CHECK(!divide(fixed(12), fixed(0)));
  CHECK(shape_text({kB, ir::Dim{4, 1}, ir::Dim{1, 2}, fixed(7)}) == "[B, 4*B, B^2, 7]");
}

TEST_CASE("broadcasting: the batch meets itself or 1, and a baked-in batch is named as such") {
  const OneNode one("Relu", {f32({kB, fixed(3)})});
  CHECK(broadcast_shapes(view(one), {kB, fixed(1), fixed(4)}, {fixed(3), fixed(1)}).value() ==
        ir::Shape{kB, fixed(3), fixed(4)});
  CHECK(broadcast_shapes(view(one), {}, {kB}).value() == ir::Shape{kB});
  CHECK(broadcast_shapes(view(one), {fixed(3)}, {fixed(4)}).problems().front().code == Code::kBadModel);
  const auto baked = broadcast_shapes(view(one), {kB, fixed(4)}, {fixed(8), fixed(4)});
  CHECK(baked.problems().front().code == Code::kBatchNotFound);
  CHECK(baked.problems().front().origin == ModelText("/layer/node"));
}

TEST_CASE("batch kinds: one dim with the batch is an axis, none or several are mixed, mixed stays mixed") {
  const OneNode batched("Relu", {f32({kB, fixed(3)})});
  CHECK(make_value(view(batched), f32({kB, fixed(3)})).batch == ir::BatchKind::kAxis);
  CHECK(make_value(view(batched), f32({fixed(3), ir::Dim{4, 1}})).batch_axis == 1);
  CHECK(make_value(view(batched), f32({fixed(3)})).batch == ir::BatchKind::kMixed);
  CHECK(make_value(view(batched), f32({kB, kB})).batch == ir::BatchKind::kMixed);
  CHECK(make_value(view(batched), f32({ir::Dim{1, 2}})).batch == ir::BatchKind::kMixed);
  CHECK(make_value(view(batched), f32({kB}), Mixing::kMixes).batch == ir::BatchKind::kMixed);

  const OneNode weights("Relu", {f32({fixed(3)})});
  CHECK(make_value(view(weights), f32({fixed(3)})).batch == ir::BatchKind::kNone);
  CHECK(make_value(view(weights), f32({kB, fixed(3)})).batch == ir::BatchKind::kAxis);

  const OneNode mixed("Relu", {f32({kB, kB})});
  CHECK(make_value(view(mixed), f32({kB})).batch == ir::BatchKind::kMixed);
}

TEST_CASE("axes are normalised, and what is out of range or named twice is refused") {
  const OneNode one("Relu", {f32({kB, fixed(3)})});
  CHECK(normalized_axis(view(one), -1, 3).value() == 2);
  CHECK(!normalized_axis(view(one), 3, 3).ok());
  CHECK(!normalized_axis(view(one), INT64_MIN, 3).ok());
  CHECK(normalized_axes(view(one), {-1, 0}, 3).value() == std::vector<int>{0, 2});
  CHECK(!normalized_axes(view(one), {2, -1}, 3).ok());
}

TEST_CASE("impossible output shapes are refused") {
  const OneNode one("Relu", {f32({kB})});
  const auto code = [&](ir::Shape shape) {
    const Inferred result = one_output(view(one), f32(std::move(shape)));
    return result.ok() ? Code::kUsage : result.problems().front().code;
  };
  CHECK(code({fixed(-2)}) == Code::kLimitExceeded);
  CHECK(code({fixed(int64_t{1} << 40), fixed(int64_t{1} << 40)}) == Code::kLimitExceeded);
  CHECK(code({ir::Dim{1, 9}}) == Code::kLimitExceeded);
  CHECK(code(ir::Shape(65, fixed(1))) == Code::kLimitExceeded);
}

TEST_CASE("unary ops keep type and batch axis, and refuse integers and wrong input counts") {
  const auto relu = OneNode("Relu", {f32({fixed(2), ir::Dim{3, 1}})}).infer();
  CHECK(relu.value().front().type == f32({fixed(2), ir::Dim{3, 1}}));
  CHECK(relu.value().front().batch_axis == 1);
  CHECK(OneNode("Relu", {i64({kB})}).infer().problems().front().code == Code::kUnsupportedType);
  CHECK(OneNode("Neg", {i64({kB})}).infer().ok());
  CHECK(!OneNode("Relu", {}).infer().ok());
  CHECK(!OneNode("Relu", {f32({kB}), f32({kB})}).infer().ok());
  CHECK(!OneNode("Celu", {f32({kB})}, {{"alpha", 0.0}}).infer().ok());
}

}  // namespace
}  // namespace graphpipe::ops
