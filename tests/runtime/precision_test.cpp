// What training in 16 bits keeps in more: the loss scale, and main weights.

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include "runtime/error.h"
#include "runtime/optimizers/loss_scale.h"
#include "runtime/optimizers/optimizer.h"
#include "runtime/optimizers/registry.h"
#include "runtime/optimizers/update_settings.h"
#include "tests/runtime/two_stage_plan.h"

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;

TEST_CASE("a loss scale halves with every overflow and doubles after good updates in a row") {
  LossScale scale(1024, 3);
  CHECK_FALSE(scale.note(false, true));
  CHECK_FALSE(scale.note(false, true));
  CHECK(scale.note(true, true));
  CHECK(scale.scale() == 512);
  for (int i = 0; i < 3; ++i) CHECK_FALSE(scale.note(false, true));
  CHECK(scale.scale() == 1024);
}

TEST_CASE("an overflow in a step without an update leaves out the next update") {
  LossScale scale(8, 1);
  CHECK_FALSE(scale.note(true, false));
  CHECK(scale.scale() == 8);
  CHECK_FALSE(scale.note(false, false));
  CHECK(scale.note(false, true));
  CHECK(scale.scale() == 4);
  CHECK_FALSE(scale.note(false, true));
  CHECK(scale.scale() == 8);
}

TEST_CASE("a loss scale goes on from its state, and refuses what is none") {
  LossScale scale(4096, 3);
  scale.note(false, true);
  scale.note(true, false);
  LossScale again(1, 3);
  REQUIRE(again.take_state(scale.state()));
  for (const bool overflow : {false, false, true, false, false, false}) {
    CHECK(again.note(overflow, true) == scale.note(overflow, true));
    CHECK(again.scale() == scale.scale());
  }
  at::Tensor damaged = scale.state();
  damaged.mutable_data_ptr<double>()[0] = 3;
  CHECK_FALSE(again.take_state(damaged));
  CHECK_FALSE(again.take_state(scale.state().to(at::kFloat)));
}

TEST_CASE("gradients that overflow at any scale end the run") {
  LossScale scale(1, 1);
  const auto overflow = [&] {
    for (int i = 0; i < 100; ++i) scale.note(true, true);
  };
  CHECK_THROWS_AS(overflow(), RunError);
}

TEST_CASE("with main weights, 16-bit parameters are float32 training, rounded") {
  const c10::InferenceMode no_autograd;
  for (const UpdateRule& rule : update_rules()) {
    CAPTURE(rule.name);
    const std::vector<UpdateTerms> terms{update_settings(rule.name, {.learning_rate = 1e-3}).terms_of("w", 2, false)};
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      Optimizer narrow(rule.name, terms, true), wide(rule.name, terms);
      at::Tensor weight = waves({4, 6}, 0.5).to(type), expected = weight.to(at::kFloat);
      for (int step = 0; step < 5; ++step) {
        const at::Tensor gradient = waves({4, 6}, step).to(type);
        narrow.step(0, weight, gradient);
        wide.step(0, expected, gradient.to(at::kFloat));
      }
      CHECK(at::equal(weight, expected.to(type)));
      const ParameterState state = narrow.state(0);
      CHECK(state.back().name == "main_weight");
      CHECK(at::equal(state.back().tensor, expected));
      CHECK(at::equal(narrow.updated_weight(0, weight), expected));
      // It goes on from what it has written.
      Optimizer next(rule.name, terms, true);
      ParameterState copy;
      for (const NamedTensor& part : state) copy.push_back({part.name, part.tensor.clone()});
      next.take_state(0, std::move(copy));
      at::Tensor other = weight.clone();
      next.step(0, other, waves({4, 6}, 9).to(type));
      narrow.step(0, weight, waves({4, 6}, 9).to(type));
      CHECK(at::equal(other, weight));
    }
  }
}
