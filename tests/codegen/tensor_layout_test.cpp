// Which reshapes look at memory and which copy: LibTorch's rules.

#include "codegen/tensor_layout.h"

#include <doctest/doctest.h>

using namespace graphpipe;
using codegen::TensorLayout;

namespace {

using Sizes = std::vector<int64_t>;

TensorLayout dense(Sizes sizes) { return codegen::contiguous(std::move(sizes)); }

/// q of attention: [batch, positions, heads, width] with heads before positions.
TensorLayout heads_first() {
  constexpr int kHeadsFirst[] = {0, 2, 1, 3};
  return codegen::permuted(dense({2, 5, 3, 4}), kHeadsFirst);
}

}  // namespace

TEST_CASE("elements that lie in order take any shape of as many") {
  for (const Sizes& sizes : {Sizes{24}, Sizes{4, 6}, Sizes{2, 3, 1, 4}, Sizes{1, 24, 1}}) {
    CAPTURE(sizes.size());
    for (const TensorLayout& from : {dense({2, 3, 4}), dense(sizes)}) {
      const auto to = codegen::reshaped(from, sizes);
      REQUIRE(to.has_value());
      CHECK(to->sizes == sizes);
      CHECK(to->is_contiguous());
    }
  }
}

TEST_CASE("a permuted tensor is split in place, and copied where axes that lie apart are joined") {
  const TensorLayout q = heads_first();
  CHECK(q.sizes == Sizes{2, 3, 5, 4});
  CHECK(q.strides == Sizes{60, 4, 12, 1});
  CHECK_FALSE(q.is_contiguous());
  // Splitting the width, or joining it with nothing, names the same elements.
  CHECK(codegen::reshaped(q, {2, 3, 5, 2, 2})->strides == Sizes{60, 4, 12, 2, 1});
  CHECK(codegen::reshaped(q, {2, 1, 3, 5, 4}).has_value());
  // Heads and positions, or batch and heads, are not one run.
  CHECK_FALSE(codegen::reshaped(q, {2, 15, 4}).has_value());
  CHECK_FALSE(codegen::reshaped(q, {6, 5, 4}).has_value());
  CHECK_FALSE(codegen::reshaped(q, {120}).has_value());
  // Put back, they are.
  constexpr int kBack[] = {0, 2, 1, 3};
  CHECK(codegen::reshaped(codegen::permuted(q, kBack), {2, 5, 12}) == dense({2, 5, 12}));
}

TEST_CASE("a part keeps the strides of the whole, and what is repeated has none") {
  const TensorLayout part = codegen::part_or_expanded(dense({2, 6, 4}), {2, 3, 4});
  CHECK(part.strides == Sizes{24, 4, 1});
  CHECK(codegen::reshaped(part, {2, 12})->strides == Sizes{24, 1});
  CHECK_FALSE(codegen::reshaped(part, {24}).has_value());
  const TensorLayout repeated = codegen::part_or_expanded(dense({3, 1}), {2, 3, 4});
  CHECK(repeated.strides == Sizes{0, 1, 0});
  CHECK_FALSE(codegen::reshaped(repeated, {6, 4}).has_value());
  CHECK(repeated.is_repeated());
  CHECK_FALSE(part.is_repeated());
  const TensorLayout along_the_middle =
      codegen::part_or_expanded(codegen::with_axes(dense({2, 4}), std::vector{1, 3}), {2, 5, 4, 6});
  CHECK(along_the_middle.strides == Sizes{4, 0, 1, 0});
}

TEST_CASE("an element-wise result has the order of its operand, without gaps") {
  const TensorLayout q = heads_first();
  CHECK(codegen::ordered_like(q) == q);
  CHECK(codegen::ordered_like(codegen::part_or_expanded(dense({2, 6, 4}), {2, 3, 4})) == dense({2, 3, 4}));
}
