// Replicas that divide the optimizer's state: their parts are the whole, bit for bit.

#include "runtime/optimizers/owned_elements.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/optimizers/optimizer.h"
#include "runtime/optimizers/update_settings.h"

using namespace graphpipe::runtime;

namespace {

at::Tensor seeded_numbers(int64_t count, double seed) {
  return at::arange(count, at::TensorOptions().dtype(at::kFloat)).add(0.5).mul(0.37 * seed).sin();
}

constexpr int kUpdatesMade = 3;

/// A parameter of this type after some steps, updated in these ranges by an optimizer each, with all that the rule
/// keeps.
at::Tensor updated_in(const std::string& name, const std::vector<ElementRange>& ranges, int64_t elements,
                      at::ScalarType type) {
  const UpdateSettings settings =
      update_settings(name, {.learning_rate = 0.01, .momentum = 0.9, .weight_decay = 0.1, .main_weights = true});
  at::Tensor weight = seeded_numbers(elements, 1).to(type);
  for (const ElementRange& range : ranges) {
    Optimizer optimizer(name, {settings.terms_of("w", 1, false)}, /*main_weights=*/true);
    for (int step = 0; step < kUpdatesMade && range.count > 0; ++step) {
      const at::Tensor gradient = seeded_numbers(elements, 2 + step);
      at::Tensor part = elements_in(weight, range);
      optimizer.step(0, part, elements_in(gradient, range));
    }
  }
  return weight;
}

std::vector<ElementRange> ranges_of_all(int64_t elements, size_t place, int32_t replicas) {
  std::vector<ElementRange> ranges;
  for (int32_t replica = 0; replica < replicas; ++replica)
    ranges.push_back(owned_elements(elements, place, replica, replicas));
  return ranges;
}

}  // namespace

TEST_CASE("every element has one owner, and owners have equally many but for a run") {
  for (const int64_t elements : {0, 1, 63, 64, 65, 1000, 4096, 100'003})
    for (const int32_t replicas : {1, 2, 3, 8})
      for (const size_t place : {0, 1, 5}) {
        CAPTURE(elements);
        CAPTURE(replicas);
        CAPTURE(place);
        std::vector<ElementRange> ranges = ranges_of_all(elements, place, replicas);
        const auto [fewest, largest] = std::ranges::minmax_element(ranges, {}, &ElementRange::count);
        CHECK(largest->count - fewest->count <= 2 * kOwnedTogether);
        std::ranges::sort(ranges, {}, [](const ElementRange& range) { return std::pair(range.first, range.count); });
        int64_t next = 0;
        for (const ElementRange& range : ranges) {
          CHECK(range.first == next);
          if (range.count > 0) CHECK(range.first % kOwnedTogether == 0);
          next += range.count;
        }
        CHECK(next == elements);
      }
  // Small parameters do not all fall to the same replica.
  CHECK(owned_elements(8, 0, 1, 2).count == 8);
  CHECK(owned_elements(8, 1, 0, 2).count == 8);
}

TEST_CASE("parts that replicas update are the parameter that one updates, bit for bit") {
  const c10::InferenceMode no_autograd;
  const int threads = at::get_num_threads();
  int rules = 0;
  for (const graphpipe::wire::OptimizerEntry& optimizer : graphpipe::wire::optimizers()) {
    if (!optimizer.updates_apart) continue;
    ++rules;
    for (const int used : {1, 2})
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
        for (const int64_t elements : {1, 63, 1000, 100'003})
          for (const int32_t replicas : {2, 3, 8}) {
            CAPTURE(optimizer.name);
            CAPTURE(used);
            CAPTURE(elements);
            CAPTURE(replicas);
            at::set_num_threads(used);
            const at::Tensor whole = updated_in(optimizer.name, {{0, elements}}, elements, type);
            const at::Tensor parts = updated_in(optimizer.name, ranges_of_all(elements, 1, replicas), elements, type);
            CHECK(at::equal(parts, whole));
            CHECK(!at::equal(whole, seeded_numbers(elements, 1).to(type)));
          }
  }
  at::set_num_threads(threads);
  CHECK(rules == 4);
}
