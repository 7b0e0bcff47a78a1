// LSTMs by steps of our own, against the same in float64, which goes by operators of LibTorch.

#include "runtime/recurrent.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <vector>

#include "runtime/kernels/lstm_steps.h"
#include "tests/ops_run/differences.h"
#include "tests/ops_run/drawn.h"

namespace graphpipe::runtime {
namespace {

using Tensors = std::vector<at::Tensor>;

struct Sequences {
  int64_t steps, rows, inputs, hidden;
  Reading reading;
  bool has_bias, has_first_states;
};
// One step and many, one row and more than a product takes at once, gates that are nearly closed.
constexpr Sequences kSequences[] = {{1, 1, 3, 16, Reading::kForward, true, true},
                                    {5, 3, 7, 48, Reading::kReverse, true, false},
                                    {4, 35, 16, 16, Reading::kBoth, false, true},
                                    {9, 2, 5, 32, Reading::kBoth, true, true}};

/// All results of the forward, and of the gradient from those of y and the last states.
Tensors results_of(const Sequences& of, at::ScalarType type) {
  const int64_t directions = of.reading == Reading::kBoth ? 2 : 1, gates = 4 * of.hidden;
  const auto typed = [&](const at::Tensor& tensor) { return tensor.to(type); };
  const at::Tensor x = typed(drawn({of.rows, of.steps, of.inputs}, 1)).transpose(0, 1);
  const at::Tensor w = typed(drawn({directions, gates, of.inputs}, 2));
  const at::Tensor r = typed(drawn({directions, gates, of.hidden}, 3).div_(4));
  const at::Tensor bias = of.has_bias ? typed(drawn({directions, 2 * gates}, 4).mul_(3)) : at::Tensor();
  const auto state = [&](uint64_t seed) { return typed(drawn({directions, of.rows, of.hidden}, seed)); };
  const at::Tensor h = of.has_first_states ? state(5) : at::Tensor(), c = of.has_first_states ? state(6) : at::Tensor();
  const auto [y, last_h, last_c, opened, cells] = lstm(x, w, r, bias, h, c, of.reading);
  const at::Tensor of_y = typed(drawn(y.sizes(), 7));
  const auto [sums, first_h, first_c] =
      lstm_gate_gradient(of_y, state(8), of.has_bias ? state(9) : at::Tensor(), opened, cells, c, r, of.reading);
  const auto [of_last, first_h_of_last, first_c_of_last] =
      lstm_gate_gradient({}, state(8), {}, opened, cells, c, r, of.reading);
  return {y, last_h, last_c, opened, cells, sums, first_h, first_c, of_last, first_h_of_last, first_c_of_last};
}

TEST_CASE("LSTMs and their gradients are those in float64, in both directions, with and without what may be absent") {
  const c10::InferenceMode no_autograd;
  for (const Sequences& of : kSequences) {
    CAPTURE(of.steps);
    CHECK(has_lstm_steps(of.hidden));
    const Tensors found = results_of(of, at::kFloat), expected = results_of(of, at::kDouble);
    for (size_t i = 0; i < found.size(); ++i) {
      CAPTURE(i);
      CHECK(found[i].sizes() == expected[i].sizes());
      CHECK(largest_difference(found[i], expected[i]) < 3e-6);
    }
  }
  CHECK_FALSE(has_lstm_steps(24));
}

TEST_CASE("the number of threads changes no bit of an LSTM") {
  const c10::InferenceMode no_autograd;
  const Sequences of{6, 40, 20, 192, Reading::kBoth, true, true};
  const int before = at::get_num_threads();
  Tensors results[2];
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    results[threads / 2] = results_of(of, at::kFloat);
  }
  at::set_num_threads(before);
  for (size_t i = 0; i < results[0].size(); ++i) CHECK(results[0][i].equal(results[1][i]));
}

}  // namespace
}  // namespace graphpipe::runtime
