#pragma once
// A cost as a function of the sample count: small micro-batches are slower per sample, and some sizes grow
// with its square (docs/semantics.md, section 5).

#include <algorithm>
#include <vector>

#include "support/units.h"

namespace graphpipe::ir {

/// Either a polynomial c0 + c1 n + c2 n^2, or a table that is interpolated linearly between its points, from
/// (0, first value) below the first and along the last segment above the last. Never negative.
class SampleFunction {
 public:
  struct Point {
    double samples = 0;
    double value = 0;
    bool operator==(const Point&) const = default;
  };

  SampleFunction() = default;
  static SampleFunction polynomial(double constant, double linear, double quadratic = 0);
  /// Needs: at least one point, samples > 0 strictly ascending, values >= 0.
  static SampleFunction table(std::vector<Point> points);

  double at(Samples samples) const { return at(static_cast<double>(samples.count)); }
  double at(double samples) const {
    // Inline: the check of a schedule and searches call it for every item.
    return is_table() ? interpolate(samples) : std::max(0.0, constant_ + samples * (linear_ + samples * quadratic_));
  }

  bool is_zero() const;
  bool is_table() const { return !points_.empty(); }
  double constant() const { return constant_; }
  double linear() const { return linear_; }
  double quadratic() const { return quadratic_; }
  const std::vector<Point>& points() const { return points_; }

  /// Sum of two functions. Tables are merged over the union of their sample counts.
  SampleFunction operator+(const SampleFunction& other) const;
  /// At least the larger of two functions everywhere, and equal to it where one is the larger everywhere: coefficients
  /// (or, with a table, points) are compared one by one.
  static SampleFunction larger(const SampleFunction& a, const SampleFunction& b);
  SampleFunction& operator+=(const SampleFunction& other) { return *this = *this + other; }
  bool operator==(const SampleFunction&) const = default;

 private:
  /// The table's value; the class comment says what it is at the ends.
  double interpolate(double samples) const;

  double constant_ = 0, linear_ = 0, quadratic_ = 0;
  std::vector<Point> points_;
};

}  // namespace graphpipe::ir
