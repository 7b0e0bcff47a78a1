#include "runtime/kernels/lstm_steps.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernels/panel_product.h"
#include "runtime/kernels/vector_loops.h"
#include "wire/lstm_steps.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3,no-trapping-math,no-math-errno")
#endif

namespace graphpipe::runtime {
namespace {

static_assert(kPanelColumns == wire::kColumnsOfLstmPanel);

constexpr float kLargestExponent = 88.0F;

GRAPHPIPE_INLINE float sigmoid_of(float x) {
  return 1.0F / (1.0F + exp_of(-x < kLargestExponent ? -x : kLargestExponent));
}

/// Near zero by its series, where the quotient cancels: both are within 4e-7 of the value.
GRAPHPIPE_INLINE float tanh_of(float x) {
  constexpr float kNearZero = 0.35F;
  const float size = x < 0 ? -x : x, square = x * x;
  const float power = exp_of(2 * size < kLargestExponent ? 2 * size : kLargestExponent);
  const float far = 1.0F - 2.0F / (power + 1.0F);
  float series = 62.0F / 2835;
  series = series * square - 17.0F / 315;
  series = series * square + 2.0F / 15;
  series = series * square - 1.0F / 3;
  const float near = size + size * square * series;
  const float result = size < kNearZero ? near : far;
  return x < 0 ? -result : result;
}

/// A row of H elements at a step.
struct ForwardRow {
  int64_t hidden;
  const float* before;  // the cell of the step before, or null
  float *gates, *cell, *y;
};

GRAPHPIPE_INLINE void forward_row(const ForwardRow& row) {
  const int64_t hidden = row.hidden;
  float *const in = row.gates, *const out = in + hidden, *const keep = out + hidden, *const fresh = keep + hidden;
#pragma GCC ivdep
  for (int64_t i = 0; i < hidden; ++i) {
    const float entering = sigmoid_of(in[i]), leaving = sigmoid_of(out[i]), kept = sigmoid_of(keep[i]);
    const float made = tanh_of(fresh[i]);
    const float cell = kept * (row.before == nullptr ? 0.0F : row.before[i]) + entering * made;
    in[i] = entering, out[i] = leaving, keep[i] = kept, fresh[i] = made;
    row.cell[i] = cell;
    row.y[i] = leaving * tanh_of(cell);
  }
}

struct BackwardRow {
  int64_t hidden;
  const float *gates, *cell, *before, *y;  // before and y may be null
  float *of_state, *of_cell, *sums;
};

GRAPHPIPE_INLINE void backward_row(const BackwardRow& row) {
  const int64_t hidden = row.hidden;
  const float *const in = row.gates, *const out = in + hidden, *const keep = out + hidden, *const fresh = keep + hidden;
  float *const of_in = row.sums, *const of_out = of_in + hidden, *const of_keep = of_out + hidden,
               *const of_fresh = of_keep + hidden;
#pragma GCC ivdep
  for (int64_t i = 0; i < hidden; ++i) {
    const float squashed = tanh_of(row.cell[i]), before = row.before == nullptr ? 0.0F : row.before[i];
    const float state = row.of_state[i] + (row.y == nullptr ? 0.0F : row.y[i]);
    const float cell = row.of_cell[i] + state * out[i] * (1 - squashed * squashed);
    of_in[i] = cell * fresh[i] * in[i] * (1 - in[i]);
    of_out[i] = state * squashed * out[i] * (1 - out[i]);
    of_keep[i] = cell * before * keep[i] * (1 - keep[i]);
    of_fresh[i] = cell * in[i] * (1 - fresh[i] * fresh[i]);
    row.of_cell[i] = cell * keep[i];
  }
}

#if defined(__x86_64__)
GRAPHPIPE_AVX512 void forward_row_avx512(const ForwardRow& row) { forward_row(row); }
GRAPHPIPE_AVX512 void backward_row_avx512(const BackwardRow& row) { backward_row(row); }
GRAPHPIPE_AVX2 void forward_row_avx2(const ForwardRow& row) { forward_row(row); }
GRAPHPIPE_AVX2 void backward_row_avx2(const BackwardRow& row) { backward_row(row); }
#endif

void run_row(const ForwardRow& row) {
#if defined(__x86_64__)
  return has_avx512() ? forward_row_avx512(row) : forward_row_avx2(row);
#endif
  forward_row(row);
}
void run_row(const BackwardRow& row) {
#if defined(__x86_64__)
  return has_avx512() ? backward_row_avx512(row) : backward_row_avx2(row);
#endif
  backward_row(row);
}

/// Columns of [inner, columns] in panels of kPanelColumns, one after the other; where it lies turned, its rows.
void pack(const LstmSteps& of, bool is_turned) {
  const int64_t gates = 4 * of.hidden, inner = is_turned ? of.hidden : gates, columns = is_turned ? gates : of.hidden;
  for_parts(columns / kPanelColumns, std::max<int64_t>(1, kElementsPerThread / (inner * kPanelColumns)),
            [&](int64_t begin, int64_t end) {
              for (int64_t panel = begin; panel < end; ++panel)
                for (int64_t i = 0; i < inner; ++i)
                  for (int64_t column = 0; column < kPanelColumns; ++column) {
                    const int64_t place = panel * kPanelColumns + column;
                    of.workspace[(panel * inner + i) * kPanelColumns + column] =
                        of.recurrent[is_turned ? place * of.hidden + i : i * of.hidden + place];
                  }
            });
}

/// result [B, columns] = left [B, inner] times the packed weights, or added to it.
void multiply(const LstmSteps& of, const float* left, int64_t inner, int64_t columns, float* result, bool adds) {
  constexpr int64_t kMultiplicationsPerThread = 1 << 18;
  const int64_t of_panel = of.rows * inner * kPanelColumns;
  for_parts(columns / kPanelColumns, ceil_div(kMultiplicationsPerThread, of_panel), [&](int64_t begin, int64_t end) {
    multiply_panels({.rows = of.rows,
                     .inner = inner,
                     .panels = end - begin,
                     .left = left,
                     .left_stride = inner,
                     .right = of.workspace + begin * inner * kPanelColumns,
                     .right_stride = inner * kPanelColumns,
                     .results = result + begin * kPanelColumns,
                     .result_stride = kPanelColumns,
                     .result_row_stride = columns,
                     .adds = adds});
  });
}

/// Calls `work` with each row, in parts that are worth a thread.
template <typename Work>
void for_each_row(const LstmSteps& of, const Work& work) {
  constexpr int64_t kWorkOfElement = 16;
  for_parts(of.rows, ceil_div(kElementsPerThread, kWorkOfElement * of.hidden), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) work(row);
  });
}

int64_t step_at(const LstmSteps& of, int64_t place) { return of.is_backward ? of.steps - 1 - place : place; }

}  // namespace

bool has_lstm_steps(int64_t hidden) { return has_avx2() && wire::fits_lstm_steps(hidden); }

void lstm_steps(const LstmSteps& of, const float* h, const float* c, float* gates, float* cells, float* y) {
  const int64_t hidden = of.hidden, states = of.rows * hidden;
  pack(of, /*is_turned=*/true);
  for (int64_t place = 0; place < of.steps; ++place) {
    const int64_t t = step_at(of, place), last = step_at(of, place - 1);
    float* const sums = gates + t * 4 * states;
    const float* const state = place == 0 ? h : y + last * of.output_stride;
    const float* const before = place == 0 ? c : cells + last * states;
    if (state != nullptr) multiply(of, state, hidden, 4 * hidden, sums, /*adds=*/true);
    for_each_row(of, [&](int64_t row) {
      run_row(ForwardRow{hidden, before == nullptr ? nullptr : before + row * hidden, sums + row * 4 * hidden,
                         cells + t * states + row * hidden, y + t * of.output_stride + row * hidden});
    });
  }
}

void lstm_steps_gradient(const LstmSteps& of, const float* gates, const float* cells, const float* c, const float* y,
                         float* state, float* cell, float* sums) {
  const int64_t hidden = of.hidden, states = of.rows * hidden;
  pack(of, /*is_turned=*/false);
  for (int64_t place = of.steps - 1; place >= 0; --place) {
    const int64_t t = step_at(of, place);
    const float* const before = place == 0 ? c : cells + step_at(of, place - 1) * states;
    for_each_row(of, [&](int64_t row) {
      const int64_t first = row * hidden;
      run_row(BackwardRow{hidden, gates + t * 4 * states + 4 * first, cells + t * states + first,
                          before == nullptr ? nullptr : before + first,
                          y == nullptr ? nullptr : y + t * of.output_stride + first, state + first, cell + first,
                          sums + t * 4 * states + 4 * first});
    });
    multiply(of, sums + t * 4 * states, 4 * hidden, hidden, state, /*adds=*/false);
  }
}

}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
