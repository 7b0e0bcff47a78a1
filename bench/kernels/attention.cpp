// Attention with loops of our own, against LibTorch's flash kernels.
//
//     taskset -c 1 build/release/bench/attention
//
// On one core, q, k and v where a projection to all three leaves them. The fastest of several rounds of each, which
// alternate: milliseconds by LibTorch and by ours, and our GFLOP/s.

#include "runtime/kernels/attention.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <cstdio>

#include "bench/kernels/fastest_of.h"

using namespace graphpipe;

namespace {

struct Heads {
  const char* name;
  int64_t samples, heads, length, width;
  bool is_masked = false, is_causal = false;
};
constexpr Heads kHeads[] = {{"Swin, windows of 7x7 places", 256, 3, 49, 32, true},
                            {"Swin v2, windows of 8x8", 256, 3, 64, 32, true},
                            {"ViT, 197 places", 4, 12, 197, 64},
                            {"BERT, 128 words", 8, 12, 128, 64},
                            {"GPT-2, 256 words", 4, 12, 256, 64, false, true},
                            {"GPT-2, 1024 words", 1, 12, 1024, 64, false, true}};

void print_pair(std::array<double, 2> seconds, double flops) {
  std::printf(" %.2f, %.2f | %.0f |", 1e3 * seconds[0], 1e3 * seconds[1], 1e-9 * flops / seconds[1]);
  std::fflush(stdout);
}

void print_passes(const Heads& of, at::ScalarType type) {
  const at::Tensor all = at::randn({of.samples, of.length, 3, of.heads, of.width}).to(type).permute({2, 0, 3, 1, 4});
  const at::Tensor q = all.select(0, 0), k = all.select(0, 1), v = all.select(0, 2);
  const at::Tensor mask = of.is_masked ? at::randn({1, of.heads, of.length, of.length}).to(type) : at::Tensor();
  const at::Tensor gradient = at::randn({of.samples, of.length, of.heads, of.width}).to(type).transpose(1, 2);
  const double scale = 1 / std::sqrt(static_cast<double>(of.width));
  const std::optional<at::Tensor> their_mask = of.is_masked ? std::optional(mask) : std::nullopt;
  const auto theirs = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0, of.is_causal, their_mask, scale);
  const auto ours = runtime::attention(q, k, v, mask, of.is_causal, scale);
  const double seen = of.is_causal ? 0.5 : 1;
  const auto product = seen * 2.0 * static_cast<double>(of.samples * of.heads * of.length * of.length * of.width);
  print_pair(
      fastest_of([&] { at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0, of.is_causal, their_mask, scale); },
                 [&] { runtime::attention(q, k, v, mask, of.is_causal, scale); }),
      2 * product);
  print_pair(fastest_of(
                 [&] {
                   at::_scaled_dot_product_flash_attention_for_cpu_backward(
                       gradient, q, k, v, std::get<0>(theirs), std::get<1>(theirs), 0, of.is_causal, their_mask, scale);
                 },
                 [&] {
                   runtime::attention_gradient(gradient, q, k, v, std::get<0>(ours), std::get<1>(ours), mask,
                                               of.is_causal, scale);
                 }),
             5 * product);
}

}  // namespace

int main() {
  const c10::InferenceMode no_autograd;
  at::set_num_threads(1);
  std::printf(
      "| heads | forward, ms | GFLOP/s | gradient, ms | GFLOP/s | in bf16: forward, ms | GFLOP/s | gradient, ms | "
      "GFLOP/s |\n|---|---|---|---|---|---|---|---|---|\n");
  for (const Heads& heads : kHeads) {
    std::printf("| %s |", heads.name);
    print_passes(heads, at::kFloat);
    print_passes(heads, at::kBFloat16);
    std::printf("\n");
  }
}
