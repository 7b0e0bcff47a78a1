#pragma once
// Which LSTMs of floats the runtime computes by steps of its own (runtime/kernels/lstm_steps.h), while the compiler
// keeps the memory free that these take. A function of the shape alone.

#include <cstdint>

namespace graphpipe::wire {

/// Columns of the recurrent weights are multiplied in whole panels (runtime/kernels/panel_product.h).
inline constexpr int64_t kColumnsOfLstmPanel = 16;

constexpr bool fits_lstm_steps(int64_t hidden) { return hidden > 0 && hidden % kColumnsOfLstmPanel == 0; }

/// Floats of the recurrent weights in the order of the panels. A double: a stranger's model may say any size.
constexpr double lstm_step_floats(int64_t hidden) {
  return 4 * static_cast<double>(hidden) * static_cast<double>(hidden);
}

}  // namespace graphpipe::wire
