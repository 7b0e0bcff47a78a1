#pragma once
// How the learning rate changes from step to step: a pure function of the step's number in the whole training, so that
// a run that goes on from a checkpoint has the rates of one that was never interrupted.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/result.h"
#include "wire/run/optimizer.h"

namespace graphpipe::wire {

/// What every learning rate is multiplied with. Steps count from 0 here, from 1 in files and for users.
///
///   constant            1
///   linear:N[,END]      from 1 down (or up) to END, 0 where it is left out, over the first N steps; END from then on
///   cosine:N[,END]      the same along half a cosine: Loshchilov and Hutter, SGDR, 2017, equation 5
///   step:N,FACTOR       FACTOR more after every N steps
///
/// With a warm-up of W steps, step t < W has (t + 1) / W, and the rest begins there; N of linear and cosine counts the
/// steps of the warm-up too, N of step those after it.
class LearningRate {
 public:
  /// Empty where the word is no such schedule.
  static std::optional<LearningRate> parse(std::string_view schedule);
  /// Of the options, with the points of their file. Errors: kUnreadableFile, kMalformedFile with the line.
  static Result<LearningRate> of(const OptimizerOptions& options);
  /// The points of a file with this text. Errors: kMalformedFile with the line.
  static Result<LearningRate> of_points(std::string_view text, const std::string& path);

  double factor(int64_t step) const;
  /// Of linear and cosine their N; 0 of others.
  int64_t end() const { return shape_ == Shape::kLinear || shape_ == Shape::kCosine ? steps_ : 0; }

 private:
  enum class Shape : uint8_t { kConstant, kLinear, kCosine, kStep, kPoints };
  struct Point {
    int64_t step = 0;  // the first one that has the factor
    double factor = 1;
  };
  Status read_points(std::string_view text, const std::string& path);

  Shape shape_ = Shape::kConstant;
  int64_t steps_ = 0, warmup_ = 0;
  double value_ = 0;
  std::vector<Point> points_;
};

}  // namespace graphpipe::wire
