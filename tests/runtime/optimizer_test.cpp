// Against what torch.optim 2.11 computes (float32, four steps of the gradients below) and clip_grad_norm_.

#include "runtime/executor/optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <cmath>

#include "runtime/executor/allocator.h"

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

at::Tensor trained(const OptimizerNumbers& numbers, Optimizer& optimizer, size_t index) {
  static_cast<void>(numbers);
  at::Tensor weight = floats({0.5, -1.25, 2.0, 0.0, 3.5});
  for (int step = 0; step < 4; ++step) optimizer.step(index, weight, gradient(step));
  return weight;
}

void check_near(const at::Tensor& found, const std::vector<double>& expected) {
  for (size_t i = 0; i < expected.size(); ++i)
    CHECK(found.const_data_ptr<float>()[i] == doctest::Approx(expected[i]).epsilon(1e-6));
}

}  // namespace

TEST_CASE("optimizers move weights as PyTorch's do") {
  const c10::InferenceMode no_autograd;
  const OptimizerNumbers sgd{.kind = OptimizerKind::kSgd, .learning_rate = 0.1};
  Optimizer plain(sgd, 1);
  check_near(trained(sgd, plain, 0),
             {0.16532644629478455, -1.3798106908798218, 2.19439959526062, 0.33987972140312195, 3.6728758811950684});
  OptimizerNumbers heavy = sgd;
  heavy.momentum = 0.9;
  heavy.weight_decay = 0.01;
  Optimizer momentum(heavy, 1);
  check_near(trained(heavy, momentum, 0),
             {-0.29560503363609314, -1.7042717933654785, 2.2699248790740967, 0.7767744660377502, 4.019768238067627});
  const OptimizerNumbers adamw{.kind = OptimizerKind::kAdamW,
                               .learning_rate = 0.01,
                               .weight_decay = 0.1,
                               .beta1 = 0.8,
                               .beta2 = 0.95,
                               .epsilon = 1e-6};
  Optimizer adam(adamw, 1);
  check_near(trained(adamw, adam, 0),
             {0.45841294527053833, -1.2761553525924683, 2.0035898685455322, 0.03985389694571495, 3.5196290016174316});
}

TEST_CASE("the bits of an update do not depend on the other parameters") {
  const c10::InferenceMode no_autograd;
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdamW}) {
    const OptimizerNumbers numbers{.kind = kind, .momentum = 0.9, .weight_decay = 0.1};
    Optimizer alone(numbers, 1), many(numbers, 3);
    const at::Tensor first = trained(numbers, many, 2), second = trained(numbers, many, 0);
    const at::Tensor single = trained(numbers, alone, 0);
    CHECK(at::equal(first, single));
    CHECK(at::equal(second, single));
  }
}

TEST_CASE("defaults are those of the optimizer") {
  CHECK(optimizer_numbers(OptimizerKind::kSgd, {}).learning_rate == 0.01);
  CHECK(optimizer_numbers(OptimizerKind::kSgd, {}).weight_decay == 0);
  CHECK(optimizer_numbers(OptimizerKind::kAdamW, {}).learning_rate == 1e-3);
  CHECK(optimizer_numbers(OptimizerKind::kAdamW, {}).weight_decay == 0.01);
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
