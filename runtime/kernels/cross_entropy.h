#pragma once
// The cross entropy of logits and class indices, summed over the positions that count. What it keeps for the gradient
// is two numbers per position, and not the probabilities of every class: with the vocabulary of a language model those
// are the largest tensor of a step.

#include <cstdint>
#include <optional>
#include <tuple>

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// The sum over positions of log(sum over classes of e^logit) - logit of the label; and for each position, along a last
/// axis, its largest logit and the logarithm of the sum of e^(logit - largest): apart, since beside large logits little
/// would be left of the logarithm. Classes lie along `axis` of the logits; labels are integers of the same shape
/// without it. Positions whose label is `ignored` count as zero. Throws c10::IndexError for any other label that is no
/// class.
std::tuple<at::Tensor, at::Tensor> cross_entropy_sum(const at::Tensor& logits, const at::Tensor& labels, int64_t axis,
                                                     std::optional<int64_t> ignored);

/// The gradient of the logits, given that of the sum: (probability - whether it is the label) * gradient; zero where
/// the label is ignored.
at::Tensor cross_entropy_gradient(const at::Tensor& logits, const at::Tensor& sums, const at::Tensor& labels,
                                  const at::Tensor& gradient, int64_t axis, std::optional<int64_t> ignored);
/// The same in the place of the logits.
at::Tensor cross_entropy_gradient_(const at::Tensor& logits, const at::Tensor& sums, const at::Tensor& labels,
                                   const at::Tensor& gradient, int64_t axis, std::optional<int64_t> ignored);

}  // namespace graphpipe::runtime
