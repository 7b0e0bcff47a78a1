// What surrounds small layers, against the operators of LibTorch that would compute it: products a few dozen wide, the
// gradients of biases, relu, and cross entropy; and BatchNorm, selections and squares, which are of any size.
//
//     taskset -c 1 build/release/bench/small_layers
//
// On one core. The fastest of several rounds of each, which alternate. Ratios above 1: ours is that much faster.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <array>
#include <cstdio>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "bench/kernels/fastest_of.h"
#include "runtime/kernels/batch_norm.h"
#include "runtime/kernels/bfloats.h"
#include "runtime/kernels/cross_entropy.h"
#include "runtime/kernels/linear.h"
#include "runtime/kernels/power.h"
#include "runtime/kernels/relu.h"
#include "runtime/kernels/sum_rows.h"
#include "runtime/kernels/top_k.h"

using namespace graphpipe;

namespace {

using Run = std::function<void()>;

void compare(const char* what, const Run& theirs, const Run& ours) {
  const auto [slow, fast] = fastest_of(theirs, ours);
  std::printf("| %s | %.2f | %.2f | %.2f |\n", what, 1e6 * slow, 1e6 * fast, slow / fast);
}

std::string sizes_text(at::IntArrayRef sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

void compare_products(int64_t rows, int64_t inner, int64_t columns, at::ScalarType type) {
  const auto drawn = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(type); };
  const at::Tensor x = drawn({rows, inner}), weight = drawn({columns, inner}), bias = drawn({columns}),
                   gradient = drawn({rows, columns});
  const std::string size = sizes_text({rows, inner, columns}) + (type == at::kBFloat16 ? ", bf16" : "");
  compare(("layer with bias, " + size).c_str(), [&] { at::addmm(bias, x, weight.t()); },
          [&] { runtime::linear(x, weight, bias, /*transposed=*/true); });
  compare(("its input gradient, " + size).c_str(), [&] { at::mm(gradient, weight); },
          [&] { runtime::linear_input_gradient(gradient, weight, /*transposed=*/true); });
  compare(("its weight gradient, " + size).c_str(), [&] { at::mm(gradient.t(), x); },
          [&] { runtime::linear_weight_gradient(x, gradient, /*transposed=*/true); });
}

void compare_sums(int64_t rows, int64_t columns) {
  const at::Tensor gradient = at::randn({rows, columns});
  compare(("gradient of a bias, " + sizes_text(gradient.sizes())).c_str(),
          [&] { at::sum(gradient, at::IntArrayRef{0}); }, [&] { runtime::sum_leading_axes(gradient, 1); });
}

void compare_casts(at::IntArrayRef sizes) {
  const at::Tensor floats = at::randn(sizes), bfloats = floats.to(at::kBFloat16);
  compare(("cast to bf16, " + sizes_text(sizes)).c_str(), [&] { floats.to(at::kBFloat16); },
          [&] { runtime::cast(floats, at::kBFloat16); });
  compare(("cast from bf16, " + sizes_text(sizes)).c_str(), [&] { bfloats.to(at::kFloat); },
          [&] { runtime::cast(bfloats, at::kFloat); });
}

void compare_relu(at::IntArrayRef sizes) {
  at::Tensor x = at::randn(sizes);
  const at::Tensor gradient = at::randn(sizes);
  compare(("relu in place, " + sizes_text(sizes)).c_str(), [&] { at::relu_(x); }, [&] { runtime::relu_(x); });
  compare(("its gradient, ours in place, " + sizes_text(sizes)).c_str(),
          [&] { at::threshold_backward(gradient, x, 0); }, [&] { runtime::relu_gradient_(gradient, x); });
}

void compare_losses(at::IntArrayRef sizes) {
  const at::Tensor logits = at::randn(sizes), factor = at::ones({});
  std::vector<int64_t> positions = sizes.vec();
  positions.erase(positions.begin() + 1);
  const at::Tensor labels = at::randint(sizes[1], positions, at::kLong), index = labels.unsqueeze(1);
  at::Tensor log_probabilities;
  compare(("cross entropy, " + sizes_text(sizes)).c_str(),
          [&] {
            log_probabilities = at::_log_softmax(logits, 1, false);
            log_probabilities.gather(1, index).sum().neg();
          },
          [&] { runtime::cross_entropy_sum(logits, labels, 1, {}); });
  const at::Tensor sums = std::get<1>(runtime::cross_entropy_sum(logits, labels, 1, {}));
  compare(("its gradient, " + sizes_text(sizes)).c_str(),
          [&] { log_probabilities.exp().scatter_(1, index, -1.0, "add").mul_(factor); },
          [&] { runtime::cross_entropy_gradient(logits, sums, labels, factor, 1, {}); });
}

void compare_batch_norm(at::IntArrayRef sizes) {
  const at::Tensor x = at::randn(sizes), gradient = at::randn(sizes), one = at::ones({sizes[1]}), mean = one.clone(),
                   variance = one.clone();
  constexpr double kTake = 0.1, kEpsilon = 1e-5;
  const auto [y, of_batch, inverse] = runtime::batch_norm(x, one, one, mean, variance, kTake, kEpsilon);
  compare(("BatchNorm, " + sizes_text(sizes)).c_str(),
          [&] { at::native_batch_norm(x, one, one, mean, variance, /*training=*/true, kTake, kEpsilon); },
          [&] { runtime::batch_norm(x, one, one, mean, variance, kTake, kEpsilon); });
  compare(("its gradients, " + sizes_text(sizes)).c_str(),
          [&, of_batch = of_batch, inverse = inverse] {
            at::native_batch_norm_backward(gradient, x, one, {}, {}, of_batch, inverse, /*train=*/true, kEpsilon,
                                           {true, true, true});
          },
          [&, of_batch = of_batch, inverse = inverse] {
            runtime::batch_norm_backward(gradient, x, one, of_batch, inverse, kEpsilon, {true, true, true});
          });
}

/// Of a stable sort of all, which has the order of ties that ONNX asks for.
void compare_selection(at::IntArrayRef sizes, int64_t k) {
  const at::Tensor x = at::randn(sizes);
  compare(("the largest " + std::to_string(k) + " of each row, " + sizes_text(sizes)).c_str(),
          [&] { at::sort(x, std::optional<bool>(true), -1, /*descending=*/true); },
          [&] { runtime::top_k(x, k, x.dim() - 1, /*largest=*/true); });
}

/// Of an exponent that a file holds as a tensor.
void compare_squares(at::IntArrayRef sizes) {
  const at::Tensor x = at::randn(sizes), gradient = at::randn(sizes), two = at::full({}, 2.0F);
  compare(("square, " + sizes_text(sizes)).c_str(), [&] { at::pow(x, two); }, [&] { runtime::power(x, two); });
  compare(("its gradient, " + sizes_text(sizes)).c_str(),
          [&] { at::where(two.eq(0.0), 0.0, x.pow(two.sub(1)).mul_(two).mul_(gradient)); },
          [&] { runtime::power_gradient(gradient, x, two); });
}

}  // namespace

int main() {
  const c10::InferenceMode no_autograd;
  at::set_num_threads(1);
  std::printf("| kernel | LibTorch, us | ours, us | times as fast |\n|---|---|---|---|\n");
  constexpr std::array<std::array<int64_t, 3>, 7> kLayers = {
      {{8, 64, 64}, {8, 128, 64}, {32, 64, 64}, {8, 13, 64}, {64, 32, 10}, {64, 64, 64}, {8, 256, 256}}};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const auto& [rows, inner, columns] : kLayers) compare_products(rows, inner, columns, type);
  compare_casts({64, 64});
  compare_casts({1024, 1024});
  constexpr std::array<std::array<int64_t, 2>, 4> kBiases = {{{8, 64}, {512, 768}, {512, 3072}, {4096, 768}}};
  for (const auto& [rows, columns] : kBiases) compare_sums(rows, columns);
  compare_relu({8, 64});
  compare_relu({512, 3072});
  compare_losses({8, 64});
  compare_losses({8, 1000});
  compare_losses({512, 50257});
  compare_losses({4, 21, 128, 128});
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{256, 256}, {8, 512, 2, 2}, {8, 512, 7, 7}, {8, 64, 56, 56}})
    compare_batch_norm(sizes);
  compare_selection({256, 3136}, 16);
  compare_squares({4, 64, 56, 56});
}
