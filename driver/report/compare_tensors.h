#pragma once
// The rule of what counts as rounding between a pipeline and the unpartitioned model (docs/semantics.md, section 2).
//
// Every step of the unpartitioned model begins with the weights that the pipeline has there. Left alone, the two would
// part for good reasons: AdamW's first updates are the signs of gradients, also of those that are all rounding, and
// where an activation has a kink, weights that differ by a little have gradients that differ by much.
//
// Gradients and outputs. A tensor may differ by `tolerance` of its Euclidean norm, or of 1e-3 of the largest norm of
// all tensors where its own is less. Rounding is as large as the terms that were added allow, not their sum: the bias
// of an attention's keys has a gradient of zero, because softmax does not see a shift, and what is left is the noise of
// terms that are as large as those of other gradients. A wrong gradient is seen from 1e-7 of the largest one on. Where
// the terms are 16-bit numbers, or what BatchNorm has multiplied with 1/deviation, the noise is larger, but a gradient
// that merely is small must not pass for it: only where the graph says that a gradient is zero does a larger part of
// the largest norm count (`floors`).
//
// Weights after a step. What trains is compared by its update, the weights minus those that the step began with: a
// difference counts in parts of the update's norm, since a small learning rate changes weights by less than any
// tolerance of their own norm. Each of the two results is rounded to a weight, so that an element may also differ by
// one unit in the last place of the weight. An optimizer turns rounding of gradients into differences of updates, and
// these may differ by that much more. Let d be the error of a gradient's element that counts as rounding by the rule
// above: `tolerance` times the norm that counts for its tensor, spread evenly over its elements.
//   - SGD moves a weight by at most learning rate * d / (1 - momentum) because of it. An update may be small because
//     the momentum and the gradient cancel, not so their rounding: a norm of learning rate * the gradient's / (1 -
//     momentum) counts where the update's own is less;
//   - AdamW moves it by its update m / (sqrt(v) + epsilon). An error d changes m and sqrt(v) by at most d each, so that
//     the update changes by at most (1 + c) d / (sqrt(v) + epsilon), where c bounds the update itself: the larger of 1
//     and (1 - beta1) / sqrt(1 - beta2) (Kingma and Ba, Adam, 2015, section 2.1). It never changes by more than 2 c.
//     Where the gradient is all noise, sqrt(v) is no larger than d, and noise divided by noise says nothing; elsewhere
//     sqrt(v) is thousands of times d, and the weights are compared as sharply as without it.
// v is the second moment after the step, corrected for its start: the mean square of the gradient so far. It also tells
// the norm of a tensor's gradient; with SGD the gradient itself does. Other optimizers say what stands for v, for the
// learning rate and for that norm (UpdateScale in runtime/optimizers/update_rule.h), and so do parameter groups and
// schedules of the learning rate: the reference records them for every parameter and step. What no
// optimizer changes, as running statistics, is compared as outputs are.

#include <map>
#include <optional>
#include <string>

#include "support/result.h"

namespace graphpipe::driver {

/// The element that differs most of the tensor that differs most.
struct WorstElement {
  ModelText tensor;
  std::string index;  // "[3,5]"; empty where the tensors have no element in common
  double found = 0, expected = 0;
};

/// By how much a tensor may differ, relatively.
struct TensorTolerance {
  double usual = 0;
  /// Of tensors for which more is rounding.
  std::map<std::string, double> looser;
  /// The part of the largest norm that counts where a tensor's own is less, of tensors for which it is not 1e-3.
  std::map<std::string, double> floors;
  double of(const std::string& tensor) const;
  double floor_of(const std::string& tensor) const;
};

struct Comparison {
  /// The relative difference, beyond what the optimizer explains, of the tensor that comes closest to its tolerance or
  /// exceeds it most, and that tolerance. The difference is infinite where names or shapes differ or a number is
  /// undefined.
  double difference = 0, tolerance = 0;
  /// Absent where nothing differs.
  std::optional<WorstElement> worst;
  /// Every tensor is within its tolerance.
  bool passed() const { return difference <= tolerance; }
};
/// Whether `a` exceeds its tolerance by more, or comes closer to it, than `b`.
bool is_worse(const Comparison& a, const Comparison& b);

/// What the files hold that are compared: by default no weights that a step has changed.
struct UpdateNoise {
  double learning_rate = 0, momentum = 0, beta1 = 0, beta2 = 0, epsilon = 0;
  /// Safetensors of the reference: the gradients of the step (SGD), or the second moments after it (AdamW).
  std::string gradients, second_moments;
  /// Safetensors with the weights that both steps began with.
  std::string before;
  /// Safetensors of the reference: of every parameter what its update was multiplied with and the norm of the gradients
  /// in it, in place of learning_rate and of what the files above tell. May be empty.
  std::string scales;
  /// By parameter, the largest difference of an element of its gradient in this step and those before
  /// (keep_largest_differences), for updates in which every element has a part in all: no more than twice that explains
  /// a difference, and what their own arithmetic rounds. Of other parameters the tolerance does.
  std::map<std::string, double> gradient_differences;
};

/// Whether two files hold the same bytes. Errors: kUnreadableFile.
Result<bool> same_bytes(const std::string& a, const std::string& b);

/// Whether all numbers of a safetensors file are finite. Errors: as compare_tensors.
Result<bool> all_finite(const std::string& path);

/// Keeps of each tensor of two safetensors files the largest difference of two elements, where it is more than the one
/// kept before. Tensors that differ in name, shape or type are left to compare_tensors. Errors: as there.
Status keep_largest_differences(const std::string& path, const std::string& reference,
                                std::map<std::string, double>& largest);

/// Compares the tensors of two safetensors files, those of `path` with those of `reference`.
/// Errors: kUnreadableFile, kMalformedFile.
Result<Comparison> compare_tensors(const std::string& path, const std::string& reference,
                                   const TensorTolerance& tolerance, const UpdateNoise& noise = {});

}  // namespace graphpipe::driver
