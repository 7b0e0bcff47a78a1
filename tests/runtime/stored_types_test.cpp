#include "runtime/kernels/stored_types.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/tensors.h"

namespace graphpipe::runtime {
namespace {

using wire::ElementType;

constexpr ElementType kSmallFloats[] = {ElementType::kFloat8E4M3FN, ElementType::kFloat8E4M3FNUZ,
                                        ElementType::kFloat8E5M2, ElementType::kFloat8E5M2FNUZ};

at::Tensor float64_tensor(const std::vector<double>& values) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::TensorOptions(at::kDouble));
  std::ranges::copy(values, tensor.mutable_data_ptr<double>());
  return tensor;
}

at::Tensor stored(const at::Tensor& x, ElementType to, bool saturate = true, PowerRounding how = PowerRounding::kUp) {
  return cast_stored(x, ElementType::kFloat64, to, saturate, how);
}

// Through the type and back to float64.
std::vector<double> through(const std::vector<double>& values, ElementType to, bool saturate = true,
                            PowerRounding how = PowerRounding::kUp) {
  const at::Tensor codes = stored(float64_tensor(values), to, saturate, how);
  const at::Tensor back = cast_stored(codes, to, ElementType::kFloat32, true, PowerRounding::kUp).to(at::kDouble);
  return {back.const_data_ptr<double>(), back.const_data_ptr<double>() + back.numel()};
}

}  // namespace

TEST_CASE("every number of a small float, as LibTorch reads it, is stored as itself") {
  const at::Tensor codes = at::arange(256, at::TensorOptions(at::kInt)).to(at::kByte);
  for (const ElementType type : kSmallFloats) {
    CAPTURE(wire::element_name(type));
    const at::Tensor values = codes.view(scalar_type(type)).to(at::kDouble);
    const at::Tensor again = stored(values, type, /*saturate=*/false).view(at::kByte);
    const at::Tensor is_nan = values.isnan();
    CHECK(at::equal(again.masked_select(is_nan.logical_not()), codes.masked_select(is_nan.logical_not())));
    CHECK(stored(values, type).to(at::kDouble).isnan().equal(is_nan));
  }
}

TEST_CASE("numbers between are rounded as LibTorch rounds them, where neither saturates") {
  std::vector<double> between;
  for (int i = -4000; i <= 4000; ++i) between.push_back(std::ldexp(i, -5) * 1.015625);
  for (int i = -300; i <= 300; ++i) between.push_back(std::ldexp(i, -20));
  const at::Tensor values = float64_tensor(between);
  for (const ElementType type : kSmallFloats) {
    CAPTURE(wire::element_name(type));
    const at::Tensor expected = values.to(at::kFloat).to(scalar_type(type));
    CHECK(at::equal(stored(values, type, false).view(at::kByte), expected.view(at::kByte)));
  }
}

TEST_CASE("what is too large saturates, or becomes what the type has beyond its largest number") {
  const double infinite = std::numeric_limits<double>::infinity();
  CHECK(through({1e6, -1e6, infinite}, ElementType::kFloat8E4M3FN) == std::vector<double>{448, -448, 448});
  CHECK(through({1e6, -1e6, infinite}, ElementType::kFloat8E5M2) == std::vector<double>{57344, -57344, 57344});
  CHECK(through({1e6, -1e6}, ElementType::kFloat8E5M2, false) == std::vector<double>{infinite, -infinite});
  for (const double value : through({1e6, -1e6, infinite}, ElementType::kFloat8E4M3FNUZ, false))
    CHECK(std::isnan(value));
  CHECK(through({0.2, 0.25, 0.75, 2.5, 5.1, 100, -100}, ElementType::kFloat4E2M1) ==
        std::vector<double>{0, 0, 1, 2, 6, 6, -6});
}

TEST_CASE("powers of two are rounded as asked") {
  const std::vector<double> values = {1, 1.2, 1.5, 3};
  CHECK(through(values, ElementType::kFloat8E8M0) == std::vector<double>{1, 2, 2, 4});
  CHECK(through(values, ElementType::kFloat8E8M0, true, PowerRounding::kDown) == std::vector<double>{1, 1, 1, 2});
  CHECK(through(values, ElementType::kFloat8E8M0, true, PowerRounding::kNearest) == std::vector<double>{1, 1, 2, 4});
}

TEST_CASE("integers of less than a byte keep the lowest bits") {
  CHECK(through({-9, -8, 7.9, 8, 16}, ElementType::kInt4) == std::vector<double>{7, -8, 7, -8, 0});
  CHECK(through({-1, 15, 16}, ElementType::kUInt4) == std::vector<double>{15, 15, 0});
  CHECK(through({-3, 1, 2}, ElementType::kInt2) == std::vector<double>{1, 1, -2});
  CHECK(through({-3, 3, 4}, ElementType::kUInt2) == std::vector<double>{1, 3, 0});
}

}  // namespace graphpipe::runtime
