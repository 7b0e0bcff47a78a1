// The passes of 3x3 convolutions by Winograd's method, with tiles of 2x2 and of 4x4 results, against what computes the
// others: LibTorch or products of windows.
//
//     taskset -c 1 build/release/bench/convolutions
//
// On one core. The fastest of several rounds of each, which alternate. GFLOP/s are of the products of the definition,
// so that fewer products show as a higher rate: of the others, of small tiles, of large ones. The last column says how
// many times as fast both kinds of tiles are. A second table has the errors.

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>

#include <array>
#include <cmath>
#include <cstdio>

#include "bench/kernels/fastest_of.h"
#include "runtime/kernels/convolution.h"
#include "runtime/kernels/kernel_choice.h"
#include "runtime/kernels/winograd.h"

using namespace graphpipe;
using wire::ConvolutionKernel;
using wire::ConvolutionPass;

namespace {

struct Layer {
  const char* name;
  int64_t samples, channels, results, size;
};
// Of networks for pictures of 224x224, of a U-Net for 128x128, and of small ones.
constexpr Layer kLayers[] = {
    {"ResNet, first stage", 8, 64, 64, 56},    {"ResNet, second stage", 8, 128, 128, 28},
    {"ResNet, third stage", 8, 256, 256, 14},  {"ResNet, last stage", 8, 512, 512, 7},
    {"U-Net, outermost", 4, 64, 64, 128},      {"U-Net, decoder", 4, 256, 128, 64},
    {"ResNet of 64x64, first", 8, 64, 64, 16}, {"ResNet of 64x64, second", 8, 128, 128, 8},
    {"small, 32 channels", 8, 32, 32, 32},     {"small, 16 channels", 8, 16, 16, 32},
    {"small, 8 channels", 8, 8, 8, 16},        {"one sample, 64 channels", 1, 64, 64, 16},
};

constexpr ConvolutionPass kPasses[] = {ConvolutionPass::kForward, ConvolutionPass::kInputGradient,
                                       ConvolutionPass::kWeightGradient};
constexpr ConvolutionKernel kKernels[] = {ConvolutionKernel::kDirect, ConvolutionKernel::kWinograd2,
                                          ConvolutionKernel::kWinograd4};

wire::Convolution pass_of(const Layer& layer, ConvolutionPass pass) {
  return {pass, layer.samples, layer.channels, layer.results, layer.size, layer.size, 1, 1};
}

void print_layer(const Layer& layer) {
  std::array<double, 3> sums = {};
  std::printf("| %s | %ld x %ld to %ld, %ldx%ld |", layer.name, layer.samples, layer.channels, layer.results,
              layer.size, layer.size);
  for (const ConvolutionPass pass : kPasses) {
    const wire::Convolution of = pass_of(layer, pass);
    const auto products =
        static_cast<double>(2 * 9 * layer.samples * layer.channels * layer.results * layer.size * layer.size);
    const runtime::MeasuredConvolution measured(of);
    const auto by = [&](ConvolutionKernel kernel) { return [&measured, kernel] { measured.run(kernel); }; };
    const auto seconds = fastest_of(by(ConvolutionKernel::kDirect), by(ConvolutionKernel::kWinograd2),
                                    by(ConvolutionKernel::kWinograd4));
    for (size_t i = 0; i < seconds.size(); ++i) {
      sums[i] += seconds[i];
      std::printf("%s %.0f", i > 0 ? "," : "", products / seconds[i] / 1e9);
    }
    std::printf(" |");
  }
  std::printf(" %.2f, %.2f |\n", sums[0] / sums[1], sums[0] / sums[2]);
  std::fflush(stdout);
}

double error(const at::Tensor& found, const at::Tensor& expected) {
  return ((found.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
}

/// Of the layer's passes by one kernel, where it may compute them.
void take_kernel(const Layer& layer, ConvolutionKernel kernel) {
  wire::ProductTable table;
  for (const ConvolutionPass pass : kPasses)
    if (wire::fits_kernel(pass_of(layer, pass), kernel)) table.convolutions.push_back({pass_of(layer, pass), kernel});
  runtime::take_measured_kernels(wire::print_product_table(table));
}

/// Parts of the norm, against float64, of elements behind a ReLU.
void print_errors(const Layer& layer) {
  const at::Tensor x = at::randn({layer.samples, layer.channels, layer.size, layer.size}).relu();
  const at::Tensor w = at::randn({layer.results, layer.channels, 3, 3}) / std::sqrt(9.0 * layer.channels);
  const at::Tensor gradient = at::randn({layer.samples, layer.results, layer.size, layer.size});
  constexpr std::array<int64_t, 2> kOnes = {1, 1}, kNone = {0, 0};
  const runtime::ConvolutionGeometry geometry{kOnes, kOnes, kOnes};
  const at::Tensor wide_x = x.to(at::kDouble), wide_w = w.to(at::kDouble);
  const at::Tensor result = at::convolution(wide_x, wide_w, {}, kOnes, kOnes, kOnes, false, kNone, 1);
  const auto [of_x, of_w, none] = at::convolution_backward(gradient.to(at::kDouble), wide_x, wide_w, std::nullopt,
                                                           kOnes, kOnes, kOnes, false, kNone, 1, {true, true, false});
  std::printf("| %s |", layer.name);
  for (const ConvolutionKernel kernel : kKernels) {
    take_kernel(layer, kernel);
    std::printf(" %.1e, %.1e, %.1e |", error(runtime::convolution(x, w, {}, geometry), result),
                error(runtime::convolution_input_gradient(gradient, x, w, geometry), of_x),
                error(runtime::convolution_weight_gradient(gradient, x, w, geometry), of_w));
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main() {
  const c10::InferenceMode no_autograd;
  at::set_num_threads(1);
  if (!runtime::has_winograd()) {
    std::fprintf(stderr, "convolutions: this processor has no vectors of eight floats\n");
    return 1;
  }
  std::printf(
      "| layer | samples x channels, size | forward, GFLOP/s | input gradient | weight gradient | times as fast |\n");
  std::printf("|---|---|---|---|---|---|\n");
  for (const Layer& layer : kLayers) print_layer(layer);
  std::printf("\n| layer | errors of forward, input and weight gradient: others | small tiles | large tiles |\n");
  std::printf("|---|---|---|---|\n");
  for (const Layer& layer : kLayers) print_errors(layer);
}
