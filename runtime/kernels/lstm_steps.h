#pragma once
// The steps of one direction of an LSTM in float32 on CPUs: the recurrent weights are copied once in the order in which
// each step's product reads them, and what follows the product is one loop. With operators of LibTorch a step is a
// dozen calls, and each product copies the weights anew.

#include <cstdint>

namespace graphpipe::runtime {

/// T steps of B rows, H hidden. Gates lie as [T, B, 4H] in the order i, o, f, c, cells as [T, B, H].
struct LstmSteps {
  int64_t steps = 0, rows = 0, hidden = 0;
  /// Whether the last step comes first.
  bool is_backward = false;
  /// [4H, H]
  const float* recurrent = nullptr;
  /// 4H * H floats, to be written.
  float* workspace = nullptr;
  /// Floats from a step of y [.., B, H] to the next.
  int64_t output_stride = 0;
};

/// Whether the processor and this number of hidden elements have such steps.
bool has_lstm_steps(int64_t hidden);

/// `gates` holds the sums of the inputs' products and biases, and gets the gates after their activations; h and c [B,
/// H] are the first states, zeros where they are null. Needs: has_lstm_steps(), and at least one step.
void lstm_steps(const LstmSteps& of, const float* h, const float* c, float* gates, float* cells, float* y);

/// To sums [T, B, 4H], the gradients of the gates before their activations. `state` and `cell` [B, H] hold the
/// gradients of the last states, and get those of the first; `y` are the outputs' gradients, or null. Needs: as above.
void lstm_steps_gradient(const LstmSteps& of, const float* gates, const float* cells, const float* c, const float* y,
                         float* state, float* cell, float* sums);

}  // namespace graphpipe::runtime
