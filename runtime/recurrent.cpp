#include "runtime/recurrent.h"

#define AT_PER_OPERATOR_HEADERS  // TensorOperators.h then includes what it needs, not all of ATen
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <vector>

#include "runtime/kernels/lstm_steps.h"
#include "runtime/kernels/product.h"
#include "runtime/kernels/vector_loops.h"

namespace graphpipe::runtime {
namespace {

using Tensors = std::vector<at::Tensor>;

int64_t direction_count(Reading reading) { return reading == Reading::kBoth ? 2 : 1; }
bool is_backward(Reading reading, int64_t direction) { return reading == Reading::kReverse || direction == 1; }

// The time step that is processed in position `place` of `count`.
int64_t step_at(bool backward, int64_t place, int64_t count) { return backward ? count - 1 - place : place; }

// The products of all steps with w, plus the biases: [T, B, gates H]. The caller slices `bias`.
at::Tensor input_products(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  at::Tensor products = at::matmul(x, w.t());
  return bias.defined() ? products + bias : products;
}

at::Tensor first_state(const at::Tensor& state, int64_t direction, const at::Tensor& x, int64_t hidden) {
  return state.defined() ? state[direction] : at::zeros({x.size(1), hidden}, x.options());
}

at::Tensor part(const at::Tensor& gates, int64_t index, int64_t hidden) {
  return gates.narrow(-1, index * hidden, hidden);
}

// gradient * s (1 - s), the derivative of a sigmoid whose value is s.
at::Tensor through_sigmoid(const at::Tensor& gradient, const at::Tensor& s) { return gradient * s * (1 - s); }
at::Tensor through_tanh(const at::Tensor& gradient, const at::Tensor& t) { return gradient * (1 - t * t); }

// A gradient that may be absent, for one direction.
at::Tensor given_or_zeros(const at::Tensor& gradient, int64_t direction, const at::Tensor& like) {
  return gradient.defined() ? gradient[direction] : at::zeros_like(like);
}

// The gradient of h at a step: what came back from the next step, plus what the reader of y sent.
at::Tensor with_output(const at::Tensor& h, const at::Tensor& y, int64_t step, int64_t direction) {
  return y.defined() ? h + y[step][direction] : h;
}

// --- LSTMs of floats on CPUs, by steps of our own ---

bool has_own_steps(std::initializer_list<at::Tensor> operands, int64_t hidden) {
  return has_lstm_steps(hidden) && std::ranges::all_of(operands, [](const at::Tensor& each) {
           return !each.defined() || (is_plain(each) && each.numel() > 0);
         });
}

at::Tensor contiguous(const at::Tensor& tensor) { return tensor.defined() ? tensor.contiguous() : tensor; }
const float* elements_of(const at::Tensor& tensor, int64_t direction) {
  return tensor.defined() ? tensor.const_data_ptr<float>() + direction * tensor.stride(0) : nullptr;
}
float* mutable_elements_of(const at::Tensor& tensor, int64_t direction) {
  return tensor.mutable_data_ptr<float>() + direction * tensor.stride(0);
}

/// Calls `work` with the steps of each direction, from sizes [D, T, B, 4H] of gates.
template <typename Work>
void for_each_direction(at::IntArrayRef gates, const at::Tensor& r, Reading reading, const Work& work) {
  const int64_t hidden = r.size(2);
  const at::Tensor workspace = new_floats({4 * hidden * hidden});
  for (int64_t d = 0; d < direction_count(reading); ++d)
    work(d, LstmSteps{.steps = gates[1],
                      .rows = gates[2],
                      .hidden = hidden,
                      .is_backward = is_backward(reading, d),
                      .recurrent = elements_of(r, d),
                      .workspace = workspace.mutable_data_ptr<float>(),
                      .output_stride = gates[0] * gates[2] * hidden});
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> lstm_by_steps(
    const at::Tensor& x, const at::Tensor& w, const at::Tensor& r, const at::Tensor& bias, const at::Tensor& h,
    const at::Tensor& c, Reading reading) {
  const int64_t steps = x.size(0), rows = x.size(1), hidden = r.size(2), directions = direction_count(reading);
  const at::Tensor y = new_floats({steps, directions, rows, hidden}),
                   gates = new_floats({directions, steps, rows, 4 * hidden}),
                   cells = new_floats({directions, steps, rows, hidden}),
                   last_h = new_floats({directions, rows, hidden}), last_c = new_floats({directions, rows, hidden});
  const at::Tensor inputs = x.reshape({steps * rows, x.size(2)});
  for_each_direction(gates.sizes(), r, reading, [&](int64_t d, const LstmSteps& of) {
    const at::Tensor sums = gates.select(0, d).view({steps * rows, 4 * hidden});
    if (bias.defined())
      sums.copy_((bias[d].narrow(0, 0, 4 * hidden) + bias[d].narrow(0, 4 * hidden, 4 * hidden)).expand_as(sums));
    product_into(sums, inputs, w[d].t(), /*adds=*/bias.defined());
    float* const states = y.mutable_data_ptr<float>() + d * rows * hidden;
    lstm_steps(of, elements_of(h, d), elements_of(c, d), mutable_elements_of(gates, d), mutable_elements_of(cells, d),
               states);
    const int64_t last = step_at(of.is_backward, steps - 1, steps);
    last_h.select(0, d).copy_(y.select(0, last).select(0, d));
    last_c.select(0, d).copy_(cells.select(0, d).select(0, last));
  });
  return {y, last_h, last_c, gates, cells};
}

at::Tensor copy_or_zeros(const at::Tensor& gradient, at::IntArrayRef sizes) {
  const at::Tensor copy = new_floats(sizes);
  return gradient.defined() ? copy.copy_(gradient) : copy.zero_();
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_gate_gradient_by_steps(
    const at::Tensor& y, const at::Tensor& last_h, const at::Tensor& last_c, const at::Tensor& gates,
    const at::Tensor& cells, const at::Tensor& c, const at::Tensor& r, Reading reading) {
  const int64_t states[] = {gates.size(0), gates.size(2), r.size(2)};
  const at::Tensor sums = new_floats(gates.sizes()), state = copy_or_zeros(last_h, states),
                   cell = copy_or_zeros(last_c, states);
  for_each_direction(gates.sizes(), r, reading, [&](int64_t d, const LstmSteps& of) {
    const float* const of_y = y.defined() ? y.const_data_ptr<float>() + d * gates.size(2) * r.size(2) : nullptr;
    lstm_steps_gradient(of, elements_of(gates, d), elements_of(cells, d), elements_of(c, d), of_y,
                        mutable_elements_of(state, d), mutable_elements_of(cell, d), mutable_elements_of(sums, d));
  });
  return {sums, state, cell};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> lstm(const at::Tensor& x, const at::Tensor& w,
                                                                            const at::Tensor& r, const at::Tensor& bias,
                                                                            const at::Tensor& h, const at::Tensor& c,
                                                                            Reading reading) {
  const int64_t steps = x.size(0), hidden = r.size(2);
  if (has_own_steps({x, w, r, bias, h, c}, hidden))
    return lstm_by_steps(x, w, r.contiguous(), bias, contiguous(h), contiguous(c), reading);
  Tensors outputs, last_h, last_c, all_gates, all_cells;
  for (int64_t d = 0; d < direction_count(reading); ++d) {
    const bool backward = is_backward(reading, d);
    const at::Tensor both =
        bias.defined() ? bias[d].narrow(0, 0, 4 * hidden) + bias[d].narrow(0, 4 * hidden, 4 * hidden) : at::Tensor();
    const at::Tensor products = input_products(x, w[d], both), recurrent = r[d].t();
    at::Tensor state = first_state(h, d, x, hidden), cell = first_state(c, d, x, hidden);
    Tensors states(steps), gates(steps), cells(steps);
    for (int64_t place = 0; place < steps; ++place) {
      const int64_t t = step_at(backward, place, steps);
      const at::Tensor sums = products[t] + at::matmul(state, recurrent);
      const at::Tensor squashed = at::sigmoid(sums.narrow(-1, 0, 3 * hidden)), fresh = at::tanh(part(sums, 3, hidden));
      cell = part(squashed, 2, hidden) * cell + part(squashed, 0, hidden) * fresh;
      state = part(squashed, 1, hidden) * at::tanh(cell);
      gates[t] = at::cat({squashed, fresh}, -1);
      states[t] = state;
      cells[t] = cell;
    }
    outputs.push_back(at::stack(states));
    all_gates.push_back(at::stack(gates));
    all_cells.push_back(at::stack(cells));
    last_h.push_back(state);
    last_c.push_back(cell);
  }
  return {at::stack(outputs, 1), at::stack(last_h), at::stack(last_c), at::stack(all_gates), at::stack(all_cells)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_gate_gradient(const at::Tensor& y, const at::Tensor& last_h,
                                                                  const at::Tensor& last_c, const at::Tensor& gates,
                                                                  const at::Tensor& cells, const at::Tensor& c,
                                                                  const at::Tensor& r, Reading reading) {
  const int64_t steps = gates.size(1), hidden = r.size(2);
  if (has_own_steps({y, last_h, last_c, gates, cells, c, r}, hidden))
    return lstm_gate_gradient_by_steps(contiguous(y), last_h, last_c, gates.contiguous(), cells.contiguous(),
                                       contiguous(c), r.contiguous(), reading);
  Tensors all, first_h, first_c;
  for (int64_t d = 0; d < direction_count(reading); ++d) {
    const bool backward = is_backward(reading, d);
    const at::Tensor first = c.defined() ? c[d] : at::zeros_like(cells[d][0]);
    at::Tensor state = given_or_zeros(last_h, d, first), cell = given_or_zeros(last_c, d, first);
    Tensors sums(steps);
    for (int64_t place = steps - 1; place >= 0; --place) {
      const int64_t t = step_at(backward, place, steps);
      const at::Tensor in = part(gates[d][t], 0, hidden), out = part(gates[d][t], 1, hidden);
      const at::Tensor keep = part(gates[d][t], 2, hidden), fresh = part(gates[d][t], 3, hidden);
      const at::Tensor squashed = at::tanh(cells[d][t]);
      const at::Tensor before = place == 0 ? first : cells[d][step_at(backward, place - 1, steps)];
      state = with_output(state, y, t, d);
      cell = cell + through_tanh(state * out, squashed);
      sums[t] = at::cat({through_sigmoid(cell * fresh, in), through_sigmoid(state * squashed, out),
                         through_sigmoid(cell * before, keep), through_tanh(cell * in, fresh)},
                        -1);
      cell = cell * keep;
      state = at::matmul(sums[t], r[d]);
    }
    all.push_back(at::stack(sums));
    first_h.push_back(state);
    first_c.push_back(cell);
  }
  return {at::stack(all), at::stack(first_h), at::stack(first_c)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> gru(const at::Tensor& x, const at::Tensor& w, const at::Tensor& r,
                                                   const at::Tensor& bias, const at::Tensor& h, Reading reading) {
  const int64_t steps = x.size(0), hidden = r.size(2);
  Tensors outputs, last_h, all_gates;
  for (int64_t d = 0; d < direction_count(reading); ++d) {
    const bool backward = is_backward(reading, d);
    const at::Tensor input_bias = bias.defined() ? bias[d].narrow(0, 0, 3 * hidden) : at::Tensor();
    const at::Tensor products = input_products(x, w[d], input_bias), recurrent = r[d].t();
    at::Tensor state = first_state(h, d, x, hidden);
    Tensors states(steps), gates(steps);
    for (int64_t place = 0; place < steps; ++place) {
      const int64_t t = step_at(backward, place, steps);
      at::Tensor sums = at::matmul(state, recurrent);
      if (bias.defined()) sums = sums + bias[d].narrow(0, 3 * hidden, 3 * hidden);
      const at::Tensor squashed = at::sigmoid(products[t].narrow(-1, 0, 2 * hidden) + sums.narrow(-1, 0, 2 * hidden));
      const at::Tensor update = part(squashed, 0, hidden), reset = part(squashed, 1, hidden);
      const at::Tensor linear = part(sums, 2, hidden), fresh = at::tanh(part(products[t], 2, hidden) + reset * linear);
      state = (1 - update) * fresh + update * state;
      gates[t] = at::cat({squashed, fresh, linear}, -1);
      states[t] = state;
    }
    outputs.push_back(at::stack(states));
    all_gates.push_back(at::stack(gates));
    last_h.push_back(state);
  }
  return {at::stack(outputs, 1), at::stack(last_h), at::stack(all_gates)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> gru_gate_gradient(const at::Tensor& y, const at::Tensor& last_h,
                                                                 const at::Tensor& gates, const at::Tensor& previous,
                                                                 const at::Tensor& r, Reading reading) {
  const int64_t steps = gates.size(1), hidden = r.size(2);
  Tensors for_w, for_r, first_h;
  for (int64_t d = 0; d < direction_count(reading); ++d) {
    const bool backward = is_backward(reading, d);
    at::Tensor state = given_or_zeros(last_h, d, previous[d][0]);
    Tensors input_sums(steps), recurrent_sums(steps);
    for (int64_t place = steps - 1; place >= 0; --place) {
      const int64_t t = step_at(backward, place, steps);
      const at::Tensor update = part(gates[d][t], 0, hidden), reset = part(gates[d][t], 1, hidden);
      const at::Tensor fresh = part(gates[d][t], 2, hidden), linear = part(gates[d][t], 3, hidden);
      state = with_output(state, y, t, d);
      const at::Tensor fresh_sum = through_tanh(state * (1 - update), fresh);
      const at::Tensor update_sum = through_sigmoid(state * (previous[d][t] - fresh), update);
      const at::Tensor reset_sum = through_sigmoid(fresh_sum * linear, reset);
      input_sums[t] = at::cat({update_sum, reset_sum, fresh_sum}, -1);
      recurrent_sums[t] = at::cat({update_sum, reset_sum, fresh_sum * reset}, -1);
      state = state * update + at::matmul(recurrent_sums[t], r[d]);
    }
    for_w.push_back(at::stack(input_sums));
    for_r.push_back(at::stack(recurrent_sums));
    first_h.push_back(state);
  }
  return {at::stack(for_w), at::stack(for_r), at::stack(first_h)};
}

at::Tensor previous_hidden(const at::Tensor& y, const at::Tensor& h, Reading reading) {
  const int64_t steps = y.size(0);
  Tensors all;
  for (int64_t d = 0; d < direction_count(reading); ++d) {
    const at::Tensor states = y.select(1, d), first = h.defined() ? h[d] : at::zeros_like(states[0]);
    all.push_back(is_backward(reading, d) ? at::cat({states.narrow(0, 1, steps - 1), first.unsqueeze(0)})
                                          : at::cat({first.unsqueeze(0), states.narrow(0, 0, steps - 1)}));
  }
  return at::stack(all);
}

}  // namespace graphpipe::runtime
