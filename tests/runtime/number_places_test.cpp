#include "runtime/kernels/number_places.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <c10/util/Exception.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace graphpipe::runtime {
namespace {

at::Tensor two_samples(const std::vector<int64_t>& numbers) {
  at::Tensor tensor = at::empty({2, static_cast<int64_t>(numbers.size()) / 2}, at::TensorOptions(at::kLong));
  std::ranges::copy(numbers, tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

}  // namespace

TEST_CASE("places are numbered within their sample, what is not picked is 0") {
  const at::Tensor mask = two_samples({0, 1, 0, 1, 1, 0, 0, 1}).to(at::kBool);
  CHECK(at::equal(number_places(mask, 2), two_samples({0, 0, 0, 1, 0, 0, 0, 1})));
  CHECK(at::equal(number_places(mask.logical_not(), 2), two_samples({0, 0, 1, 0, 0, 0, 1, 0})));
}

TEST_CASE("a sample with another number of places than its source has elements is named, with both numbers") {
  const at::Tensor mask = two_samples({0, 1, 0, 1, 1, 1, 0, 1}).to(at::kBool);
  std::string message;
  try {
    number_places(mask, 2);
  } catch (const c10::IndexError& error) {
    message = error.what_without_backtrace();
  }
  CHECK(message ==
        "masked_scatter: the mask picks 3 elements in sample 1 of the micro-batch, and its source has 2 for "
        "each sample");
}

}  // namespace graphpipe::runtime
