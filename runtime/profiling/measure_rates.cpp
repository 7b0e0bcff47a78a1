#include "runtime/profiling/measure_rates.h"

#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>
#include <sys/resource.h>

#include <algorithm>
#include <vector>

#include "runtime/kernels/attention.h"
#include "runtime/kernels/convolution.h"
#include "runtime/kernels/depthwise_convolution.h"
#include "runtime/kernels/gelu.h"
#include "runtime/kernels/linear.h"
#include "runtime/kernels/relu.h"
#include "runtime/kernels/sum_rows.h"
#include "runtime/kernels/winograd.h"
#include "runtime/profiling/measure.h"
#include "support/units.h"
#include "wire/depthwise.h"
#include "wire/function_flops.h"

namespace graphpipe::runtime {
namespace {

/// Rounds of a measurement; the fastest counts. Each takes at least kRoundSeconds, but less than a time slice of the
/// system's scheduler: among many rounds some are undisturbed.
constexpr int kRounds = 6;
constexpr double kRoundSeconds = 4e-4;
/// Long calls do not need as many rounds, and after so long without an undisturbed one the fastest has to do.
constexpr double kMaxSeconds = 0.1, kMaxDisturbedSeconds = 0.3;

/// How often the system has taken the core away from this thread.
long preemptions() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}
}  // namespace

double seconds_of(const std::function<void()>& call, const std::function<void()>& finish) {
  call();
  finish();
  const Clock::time_point first = Clock::now();
  call();
  finish();
  const int calls = std::clamp(static_cast<int>(kRoundSeconds / std::max(seconds_since(first), 1e-8)), 1, 10000);
  double fastest = kInfinity;
  for (int undisturbed = 0; undisturbed < kRounds;) {
    const long before = preemptions();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    finish();
    fastest = std::min(fastest, seconds_since(start) / calls);
    if (preemptions() == before) ++undisturbed;
    if (seconds_since(first) > (undisturbed > 0 ? kMaxSeconds : kMaxDisturbedSeconds)) break;
  }
  return fastest;
}

UpdateSeconds measure_update(const std::function<double(int64_t rows, int64_t columns)>& seconds, int64_t large) {
  constexpr int64_t kColumns = 1024, kFewRows = 512, kRowBytes = 4 * kColumns;
  // An update slower than this is compute-bound, and its time does not depend on whether the weights are in a cache.
  constexpr double kComputes = 1e-9;
  UpdateSeconds result{.tensor = seconds(8, 8)};
  const auto per_byte = [&](int64_t rows) {
    return std::max(0.0, seconds(rows, kColumns) - result.tensor) / static_cast<double>(rows * kRowBytes);
  };
  result.byte = per_byte(kFewRows);
  // The weights of a model are in no cache when they are updated.
  if (result.byte < kComputes) result.byte = per_byte(large / kRowBytes);
  return result;
}

namespace {

/// Operators bound by memory, with the bytes that they read and write per element.
struct Elementwise {
  double bytes;
  at::Tensor (*call)(const at::Tensor&);
};
constexpr Elementwise kElementwise[] = {
    {8, [](const at::Tensor& x) { return relu(x); }},
    {12, [](const at::Tensor& x) { return at::add(x, x); }},
    {12, [](const at::Tensor& x) { return at::mul(x, x); }},
};

/// Norms and functions, with what they compute per element.
struct Function {
  double flops;
  at::Tensor (*call)(const at::Tensor&);
};
constexpr Function kFunctions[] = {
    {wire::kGeluFlops, [](const at::Tensor& x) { return gelu(x); }},
    {wire::kSoftmaxFlops, [](const at::Tensor& x) { return at::softmax(x, -1); }},
    {wire::kLayerNormFlops,
     [](const at::Tensor& x) { return std::get<0>(at::native_layer_norm(x, {x.size(-1)}, {}, {}, 1e-5)); }},
};

/// The mean over calls on tensors so small that only the overhead of the call matters.
double operator_seconds() {
  const at::Tensor small = at::ones({4, 16}), square = at::ones({16, 16});
  double sum = 0, count = 0;
  const auto add = [&](const std::function<void()>& call) {
    sum += seconds_of(call);
    count += 1;
  };
  for (const Elementwise& op : kElementwise) add([&] { op.call(small); });
  for (const Function& function : kFunctions) add([&] { function.call(small); });
  add([&] { linear(small, square, {}, /*transposed=*/true); });
  add([&] { sum_leading_axes(small, 1); });
  return sum / count;
}

/// The time without the overhead of the call, which may have been disturbed more than the work; at least a tenth counts
/// as work.
double beside_call(double seconds, double call) { return std::max(seconds - call, seconds / 10); }

/// FLOP/s of matrix products at the sizes of a layer, excluding the overhead of the calls.
double product_rate(double operator_seconds, at::ScalarType type = at::kFloat) {
  constexpr int64_t kSizes[][3] = {{64, 256, 256}, {256, 256, 1024}, {256, 512, 512}};
  double flops = 0, seconds = 0;
  for (const auto& [rows, inner, columns] : kSizes) {
    const at::Tensor a = at::ones({rows, inner}, type), b = at::ones({columns, inner}, type);
    flops += 2 * static_cast<double>(rows * inner * columns);
    seconds += beside_call(seconds_of([&] { linear(a, b, {}, /*transposed=*/true); }), operator_seconds);
  }
  return flops / seconds;
}

/// Bytes per second of element-wise operators: on a tensor that stays in a cache, and on so many in turn that what was
/// saved for a gradient is no longer there.
double memory_rate(double operator_seconds) {
  constexpr int64_t kRows = 256, kWidth = 1024, kTensors = 2 * kBeyondCachesOfCpus / (4 * kRows * kWidth);
  std::vector<at::Tensor> all;
  for (int64_t i = 0; i < kTensors; ++i) all.push_back(at::ones({kRows, kWidth}));
  double bytes = 0, seconds = 0;
  const auto add = [&](const Elementwise& op, const std::function<void()>& call) {
    bytes += op.bytes * static_cast<double>(kRows * kWidth);
    seconds += beside_call(seconds_of(call), operator_seconds);
  };
  size_t next = 0;
  for (const Elementwise& op : kElementwise) {
    add(op, [&] { op.call(all.front()); });
    add(op, [&] { op.call(all[next++ % all.size()]); });
  }
  return bytes / seconds;
}

/// FLOP/s of norms and functions, as wire/function_flops.h counts.
double function_rate(double operator_seconds) {
  const at::Tensor x = at::ones({256, 256});
  double flops = 0, seconds = 0;
  for (const Function& function : kFunctions) {
    flops += function.flops * static_cast<double>(x.numel());
    seconds += beside_call(seconds_of([&] { function.call(x); }), operator_seconds);
  }
  return flops / seconds;
}

/// Bytes per second of weights that products of a few rows stream, one after the other, so that none is in a cache:
/// beside the arithmetic, which hides little of it.
double weight_rate(double product_rate, double operator_seconds) {
  constexpr int64_t kRows = 8, kWidth = 1024, kMatrices = 4 * kBeyondCachesOfCpus / (4 * kWidth * kWidth);
  const at::Tensor x = at::ones({kRows, kWidth});
  std::vector<at::Tensor> weights;
  for (int64_t i = 0; i < kMatrices; ++i) weights.push_back(at::ones({kWidth, kWidth}));
  size_t next = 0;
  const double seconds = seconds_of([&] { linear(x, weights[next++ % weights.size()], {}, /*transposed=*/true); });
  constexpr auto kElements = static_cast<double>(kWidth * kWidth);
  return 4 * kElements / beside_call(seconds, operator_seconds + 2 * kRows * kElements / product_rate);
}

/// FLOP/s of 3x3 convolutions and their gradients, over maps from large to deep, each by the fastest of those kernels
/// that may compute it, as `build` chooses. Counted are the products of the definition, also where Winograd's method
/// needs fewer.
double convolution_rate(std::initializer_list<wire::ConvolutionKernel> kernels, double operator_seconds) {
  constexpr int64_t kSamples = 4, kWindow = 9, kMaps[][2] = {{32, 64}, {64, 16}, {256, 8}};
  double flops = 0, seconds = 0;
  for (const auto& [channels, size] : kMaps)
    for (const wire::ConvolutionPass pass : {wire::ConvolutionPass::kForward, wire::ConvolutionPass::kInputGradient,
                                             wire::ConvolutionPass::kWeightGradient}) {
      flops += 2 * static_cast<double>(kSamples * size * size * channels * channels * kWindow);
      const wire::Convolution of{pass, kSamples, channels, channels, size, size, 1, 1};
      const MeasuredConvolution measured(of);
      double fastest = kInfinity;
      for (const wire::ConvolutionKernel kernel : kernels)
        if (wire::fits_kernel(of, kernel)) fastest = std::min(fastest, seconds_of([&] { measured.run(kernel); }));
      seconds += beside_call(fastest, operator_seconds);
    }
  return flops / seconds;
}

/// Of convolutions that fit Winograd's method.
double winograd_rate(double direct, double operator_seconds) {
  using enum wire::ConvolutionKernel;
  return has_winograd() ? convolution_rate({kDirect, kWinograd2, kWinograd4}, operator_seconds) : direct;
}

/// FLOP/s of depthwise convolutions and their gradients, beside what they move, with what the cost model counts for
/// each plane.
double depthwise_rate(double memory_rate, double operator_seconds) {
  struct Layer {
    int64_t channels, size, kernel;
  };
  constexpr Layer kLayers[] = {{96, 28, 3}, {192, 14, 3}, {96, 14, 5}, {384, 7, 3}};
  constexpr int64_t kSamples = 4, kOnes[] = {1, 1};
  double flops = 0, seconds = 0;
  for (const auto& [channels, size, kernel] : kLayers) {
    const at::Tensor x = at::ones({kSamples, channels, size, size}), weight = at::ones({channels, 1, kernel, kernel});
    const int64_t pads[] = {kernel / 2, kernel / 2};
    const ConvolutionGeometry geometry{kOnes, pads, kOnes};
    const auto add = [&](const std::function<void()>& call) {
      const auto elements = static_cast<double>(x.numel());
      flops += 2 * elements * static_cast<double>(kernel * kernel) +
               wire::kFlopsOfDepthwisePlane * static_cast<double>(kSamples * channels);
      const double all = seconds_of(call), moved = 2 * sizeof(float) * elements / memory_rate;
      seconds += std::max(beside_call(all, operator_seconds) - moved, all / 4);
    };
    add([&] { depthwise_convolution(x, weight, {}, geometry); });
    add([&] { depthwise_convolution_input_gradient(x, x, weight, geometry); });
    add([&] { depthwise_convolution_weight_gradient(x, x, weight, geometry); });
  }
  return flops / seconds;
}

/// FLOP/s of attention and its gradient, with narrow and with wide heads.
double attention_rate(double operator_seconds, at::ScalarType type = at::kFloat) {
  constexpr int64_t kSamples = 2, kHeads = 8, kRows = 64, kWidths[] = {32, 64};
  // Two products forward; five backward, which recompute the scores.
  constexpr double kProducts = 2 + 5;
  double flops = 0, seconds = 0;
  for (const int64_t width : kWidths) {
    const at::Tensor q = at::ones({kSamples, kHeads, kRows, width}, type);
    flops += 2 * kProducts * static_cast<double>(q.numel() * kRows);
    const auto [result, rows] = attention(q, q, q, {}, /*causal=*/false, 1);
    const double forward = seconds_of([&] { attention(q, q, q, {}, /*causal=*/false, 1); });
    const double backward =
        seconds_of([&, &result = result, &rows = rows] { attention_gradient(q, q, q, q, result, rows, {}, false, 1); });
    seconds += beside_call(forward, operator_seconds) + beside_call(backward, operator_seconds);
  }
  return flops / seconds;
}

/// FLOP/s of a 3x3 convolution and its gradients in a 16-bit type.
double sixteen_bit_convolution_rate(double operator_seconds, at::ScalarType type) {
  constexpr int64_t kSamples = 4, kChannels = 64, kSize = 16, kOnes[] = {1, 1};
  const at::Tensor x = at::ones({kSamples, kChannels, kSize, kSize}, type);
  const at::Tensor weight = at::ones({kChannels, kChannels, 3, 3}, type);
  const ConvolutionGeometry geometry{kOnes, kOnes, kOnes};
  double flops = 0, seconds = 0;
  const auto add = [&](const std::function<void()>& call) {
    flops += 2 * static_cast<double>(x.numel() * weight.numel() / kChannels);
    seconds += beside_call(seconds_of(call), operator_seconds);
  };
  add([&] { convolution(x, weight, {}, geometry); });
  add([&] { convolution_input_gradient(x, x, weight, geometry); });
  add([&] { convolution_weight_gradient(x, x, weight, geometry); });
  return flops / seconds;
}

SixteenBitRates sixteen_bit_rates(double operator_seconds, at::ScalarType type) {
  return {.products = product_rate(operator_seconds, type),
          .convolutions = sixteen_bit_convolution_rate(operator_seconds, type),
          .attention = attention_rate(operator_seconds, type)};
}

/// Replaces rates by higher ones. A type that is slower than float32 is not measured again: on processors without
/// instructions for it that takes longer than everything else.
void raise_sixteen_bit_rates(SixteenBitRates& best, const DeviceRates& rates, at::ScalarType type) {
  const bool is_slow = best.products < rates.products || best.convolutions < rates.convolutions;
  if (best.products > 0 && is_slow) return;
  const SixteenBitRates again = sixteen_bit_rates(rates.operator_seconds, type);
  for (double SixteenBitRates::*rate :
       {&SixteenBitRates::products, &SixteenBitRates::convolutions, &SixteenBitRates::attention})
    best.*rate = std::max(best.*rate, again.*rate);
}

DeviceRates measured_once() {
  DeviceRates rates{.operator_seconds = operator_seconds()};
  rates.products = product_rate(rates.operator_seconds);
  rates.convolutions = convolution_rate({wire::ConvolutionKernel::kDirect}, rates.operator_seconds);
  rates.winograd = winograd_rate(rates.convolutions, rates.operator_seconds);
  rates.attention = attention_rate(rates.operator_seconds);
  rates.memory = memory_rate(rates.operator_seconds);
  rates.functions = function_rate(rates.operator_seconds);
  rates.depthwise = depthwise_rate(rates.memory, rates.operator_seconds);
  rates.weights = weight_rate(rates.products, rates.operator_seconds);
  return rates;
}

}  // namespace

DeviceRates measure_rates() {
  // Rounds follow each other closely: a slowdown that affects all of them should not last through the passes too.
  constexpr int kPasses = 3;
  DeviceRates best = measured_once();
  for (int pass = 0; pass < kPasses; ++pass) {
    raise_sixteen_bit_rates(best.bfloat16, best, at::kBFloat16);
    raise_sixteen_bit_rates(best.float16, best, at::kHalf);
    if (pass + 1 == kPasses) break;
    const DeviceRates again = measured_once();
    best.operator_seconds = std::min(best.operator_seconds, again.operator_seconds);
    for (double DeviceRates::*rate :
         {&DeviceRates::products, &DeviceRates::convolutions, &DeviceRates::winograd, &DeviceRates::depthwise,
          &DeviceRates::attention, &DeviceRates::functions, &DeviceRates::memory, &DeviceRates::weights})
      best.*rate = std::max(best.*rate, again.*rate);
  }
  return best;
}

}  // namespace graphpipe::runtime
