// The passes of 3x3 convolutions by Winograd's method, with tiles of 2x2 and of 4x4 results, against what computes the
// others: LibTorch or products of windows.
//
//     taskset -c 1 build/release/bench/convolution_speed
//
// On one core. The fastest of several rounds of each, which alternate. GFLOP/s are of the products of the definition,
// so that fewer products show as a higher rate: of the others, of small tiles, of large ones. The last column says how
// many times as fast both kinds of tiles are.

#include <array>
#include <cstdio>

#include "bench/kernels/fastest_of.h"
#include "runtime/kernels/convolution.h"
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

void print_layer(const Layer& layer) {
  std::array<double, 3> sums = {};
  std::printf("| %s | %ld x %ld to %ld, %ldx%ld |", layer.name, layer.samples, layer.channels, layer.results,
              layer.size, layer.size);
  for (const ConvolutionPass pass :
       {ConvolutionPass::kForward, ConvolutionPass::kInputGradient, ConvolutionPass::kWeightGradient}) {
    const wire::Convolution of{pass, layer.samples, layer.channels, layer.results, layer.size, layer.size, 1, 1};
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

}  // namespace

int main() {
  if (!runtime::has_winograd()) {
    std::fprintf(stderr, "convolution_speed: this processor has no vectors of eight floats\n");
    return 1;
  }
  std::printf(
      "| layer | samples x channels, size | forward, GFLOP/s | input gradient | weight gradient | times as fast |\n");
  std::printf("|---|---|---|---|---|---|\n");
  for (const Layer& layer : kLayers) print_layer(layer);
}
