// Against what torch.optim 2.11 computes (float32, four steps of the gradients below) and clip_grad_norm_.

#include "runtime/optimizers/optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <cmath>

#include "runtime/executor/allocator.h"
#include "runtime/optimizers/gradient_norm.h"
#include "runtime/optimizers/registry.h"

using namespace graphpipe::runtime;

namespace {

at::Tensor floats(const std::vector<double>& values) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::TensorOptions().dtype(at::kFloat));
  for (size_t i = 0; i < values.size(); ++i) tensor.mutable_data_ptr<float>()[i] = static_cast<float>(values[i]);
  return tensor;
}

at::Tensor gradient(int step) {
  std::vector<double> values;
  for (int i = 0; i < 5; ++i) values.push_back(std::sin(1.0 + i + 0.5 * step));
  return floats(values);
}

void train(Optimizer& optimizer, size_t index, at::Tensor& weight, int first, int last) {
  for (int step = first; step < last; ++step) optimizer.step(index, weight, gradient(step));
}

at::Tensor start() { return floats({0.5, -1.25, 2.0, 0.0, 3.5}); }

at::Tensor trained(const OptimizerSettings& settings) {
  Optimizer optimizer(settings, 1);
  at::Tensor weight = start();
  train(optimizer, 0, weight, 0, 4);
  return weight;
}

// Numbers that make every rule remember all that it can.
OptimizerSettings busy(const char* name) {
  OptimizerSettings settings = optimizer_settings(name, {});
  settings.numbers.momentum = 0.9;
  settings.numbers.weight_decay = 0.1;
  return settings;
}

void check_near(const at::Tensor& found, const std::vector<double>& expected) {
  for (size_t i = 0; i < expected.size(); ++i)
    CHECK(found.const_data_ptr<float>()[i] == doctest::Approx(expected[i]).epsilon(1e-6));
}

}  // namespace

TEST_CASE("optimizers move weights as PyTorch's do") {
  const c10::InferenceMode no_autograd;
  OptimizerSettings sgd{.name = "sgd", .numbers = {.learning_rate = 0.1}};
  check_near(trained(sgd),
             {0.16532644629478455, -1.3798106908798218, 2.19439959526062, 0.33987972140312195, 3.6728758811950684});
  sgd.numbers.momentum = 0.9;
  sgd.numbers.weight_decay = 0.01;
  check_near(trained(sgd),
             {-0.29560503363609314, -1.7042717933654785, 2.2699248790740967, 0.7767744660377502, 4.019768238067627});
  const OptimizerNumbers numbers{
      .learning_rate = 0.01, .weight_decay = 0.1, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6};
  check_near(trained({.name = "adamw", .numbers = numbers}),
             {0.45841294527053833, -1.2761553525924683, 2.0035898685455322, 0.03985389694571495, 3.5196290016174316});
}

TEST_CASE("every optimizer that plans may name has an update rule, and no other") {
  REQUIRE(update_rules().size() == graphpipe::wire::optimizers().size());
  for (const auto& entry : graphpipe::wire::optimizers()) {
    CAPTURE(entry.name);
    const UpdateRule& rule = update_rule(entry.name);
    CHECK(entry.normalises == (rule.second_moment != nullptr));
    // What memory is planned for holds the state of any weight; counters of a few bytes aside.
    const at::Tensor weight = at::zeros({64, 64}, at::TensorOptions().dtype(at::kFloat));
    double bytes = 0;
    for (const NamedTensor& part : rule.fresh_state(weight, busy(entry.name).numbers)) {
      CHECK(part.name.find('/') == std::string::npos);
      if (part.tensor.dim() > 0) bytes += static_cast<double>(part.tensor.nbytes());
    }
    CHECK(bytes <= entry.state_per_weight_byte * static_cast<double>(weight.nbytes()));
  }
}

TEST_CASE("the bits of an update do not depend on the other parameters") {
  const c10::InferenceMode no_autograd;
  for (const UpdateRule& rule : update_rules()) {
    CAPTURE(rule.name);
    Optimizer many(busy(rule.name), 3);
    at::Tensor first = start(), second = start();
    train(many, 2, first, 0, 4);
    train(many, 0, second, 0, 4);
    const at::Tensor alone = trained(busy(rule.name));
    CHECK(at::equal(first, alone));
    CHECK(at::equal(second, alone));
    CHECK_FALSE(at::equal(alone, start()));
  }
}

TEST_CASE("an optimizer goes on from a state that was taken as if it had not stopped") {
  const c10::InferenceMode no_autograd;
  for (const UpdateRule& rule : update_rules()) {
    CAPTURE(rule.name);
    Optimizer before(busy(rule.name), 1), after(busy(rule.name), 1), forgetful(busy(rule.name), 1);
    at::Tensor weight = start();
    CHECK(before.state(0).empty());
    train(before, 0, weight, 0, 2);
    at::Tensor forgotten = weight.clone();
    ParameterState state = after.fresh_state(weight);
    REQUIRE(state.size() == before.state(0).size());
    for (size_t i = 0; i < state.size(); ++i) {
      CHECK(state[i].name == before.state(0)[i].name);
      REQUIRE(state[i].tensor.sizes() == before.state(0)[i].tensor.sizes());
      state[i].tensor.copy_(before.state(0)[i].tensor);
    }
    after.take_state(0, std::move(state));
    train(after, 0, weight, 2, 4);
    CHECK(at::equal(weight, trained(busy(rule.name))));
    train(forgetful, 0, forgotten, 2, 4);
    CHECK_FALSE(at::equal(forgotten, weight));
  }
}

TEST_CASE("absent numbers are those of the optimizer") {
  CHECK(optimizer_settings("sgd", {}).numbers.learning_rate == 0.01);
  CHECK(optimizer_settings("sgd", {}).numbers.weight_decay == 0);
  CHECK(optimizer_settings("adamw", {}).numbers.learning_rate == 1e-3);
  CHECK(optimizer_settings("adamw", {}).numbers.weight_decay == 0.01);
  CHECK(optimizer_settings("adamw", {.weight_decay = 0.0}).numbers.weight_decay == 0);
}

TEST_CASE("clipping scales to the largest norm, and never up") {
  const c10::InferenceMode no_autograd;
  const double norm = std::sqrt(squared_norm(floats({3, 4})) + squared_norm(floats({12})));
  CHECK(norm == 13);
  CHECK(3 * clip_factor(norm, 6.5) == doctest::Approx(1.4999998807907104).epsilon(1e-7));
  CHECK(clip_factor(norm, 20) == 1);
  CHECK(clip_factor(norm, 0) == 1);
}

TEST_CASE("the counting allocator counts what tensors hold") {
  count_tensor_bytes();
  reset_peak_tensor_bytes();
  const int64_t before = tensor_bytes();
  {
    const at::Tensor a = at::zeros({1000}, at::TensorOptions().dtype(at::kFloat));
    CHECK(tensor_bytes() == before + 4000);
    CHECK(reinterpret_cast<uintptr_t>(a.data_ptr()) % 64 == 0);
    at::Tensor b = at::zeros({500}, at::TensorOptions().dtype(at::kDouble));
    b.resize_({1000});
    CHECK(tensor_bytes() == before + 12000);
  }
  CHECK(tensor_bytes() == before);
  CHECK(peak_tensor_bytes() >= before + 12000);
}
