#pragma once
// LSTM and GRU over a whole sequence, with ONNX's layout and order of gates, and the gradients of their gates. Weight
// and input gradients are matrix products over these, which are separate nodes of the graph.
//
// Sizes: T steps, B rows, I inputs, H hidden, D directions. x [T, B, I], w [D, gates H, I], r [D, gates H, H], bias
// [D, 2 gates H] (for w, then for r), h and c [D, B, H], y [T, D, B, H]. Absent tensors are undefined ones.

#include <cstdint>
#include <tuple>

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// The direction in which a sequence is read; both: direction 0 forward, direction 1 backward.
enum class Reading : uint8_t { kForward, kReverse, kBoth };

/// y, last h, last c, gates after their activations [D, T, B, 4H] in the order i, o, f, c; cells [D, T, B, H].
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> lstm(const at::Tensor& x, const at::Tensor& w,
                                                                            const at::Tensor& r, const at::Tensor& bias,
                                                                            const at::Tensor& h, const at::Tensor& c,
                                                                            Reading reading);
/// Gradients of the gates before their activations [D, T, B, 4H], of the first h and of the first c, from those of y,
/// the last h and the last c.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_gate_gradient(const at::Tensor& y, const at::Tensor& last_h,
                                                                  const at::Tensor& last_c, const at::Tensor& gates,
                                                                  const at::Tensor& cells, const at::Tensor& c,
                                                                  const at::Tensor& r, Reading reading);

/// y, last h, and [D, T, B, 4H]: the gates z, r and h after their activations, and the factor of r. The variant with
/// linear_before_reset = 1.
std::tuple<at::Tensor, at::Tensor, at::Tensor> gru(const at::Tensor& x, const at::Tensor& w, const at::Tensor& r,
                                                   const at::Tensor& bias, const at::Tensor& h, Reading reading);
/// Gradients of the gates before their activations as w's products see them and as r's products see them, both
/// [D, T, B, 3H], and of the first h. `previous` is previous_hidden() of the forward.
std::tuple<at::Tensor, at::Tensor, at::Tensor> gru_gate_gradient(const at::Tensor& y, const at::Tensor& last_h,
                                                                 const at::Tensor& gates, const at::Tensor& previous,
                                                                 const at::Tensor& r, Reading reading);

/// The hidden state that each step started from [D, T, B, H].
at::Tensor previous_hidden(const at::Tensor& y, const at::Tensor& h, Reading reading);

}  // namespace graphpipe::runtime
