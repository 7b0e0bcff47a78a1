#include "ir/sample_function.h"

#include <algorithm>

#include "support/check.h"

namespace graphpipe::ir {

namespace {

/// The sample counts of both tables, ascending, each once; values are still zero.
std::vector<SampleFunction::Point> merged_points(const SampleFunction& a, const SampleFunction& b) {
  std::vector<SampleFunction::Point> points;
  for (const auto* source : {&a.points(), &b.points()})
    for (const auto& point : *source) points.push_back({point.samples, 0});
  std::sort(points.begin(), points.end(), [](const auto& x, const auto& y) { return x.samples < y.samples; });
  points.erase(std::unique(points.begin(), points.end()), points.end());
  return points;
}

}  // namespace

SampleFunction SampleFunction::polynomial(double constant, double linear, double quadratic) {
  SampleFunction result;
  result.constant_ = constant;
  result.linear_ = linear;
  result.quadratic_ = quadratic;
  return result;
}

SampleFunction SampleFunction::table(std::vector<Point> points) {
  GP_CHECK(!points.empty());
  GP_CHECK(points.front().samples > 0);
  for (size_t i = 0; i < points.size(); ++i) {
    GP_CHECK(points[i].value >= 0);
    GP_CHECK(i == 0 || points[i - 1].samples < points[i].samples);
  }
  SampleFunction result;
  result.points_ = std::move(points);
  return result;
}

double SampleFunction::interpolate(double samples) const {
  const auto above = std::find_if(points_.begin(), points_.end(), [&](const auto& p) { return p.samples >= samples; });
  if (above == points_.begin()) return above->value;
  if (above == points_.end() && points_.size() == 1) return points_.back().value;
  const auto& right = above == points_.end() ? points_.back() : *above;
  const auto& left = above == points_.end() ? points_[points_.size() - 2] : *(above - 1);
  const double slope = (right.value - left.value) / (right.samples - left.samples);
  return std::max(0.0, left.value + slope * (samples - left.samples));
}

bool SampleFunction::is_zero() const {
  if (is_table()) return std::all_of(points_.begin(), points_.end(), [](const Point& p) { return p.value == 0; });
  return constant_ == 0 && linear_ == 0 && quadratic_ == 0;
}

SampleFunction SampleFunction::operator+(const SampleFunction& other) const {
  if (!is_table() && !other.is_table())
    return polynomial(constant_ + other.constant_, linear_ + other.linear_, quadratic_ + other.quadratic_);
  const auto same_samples = [](const Point& a, const Point& b) { return a.samples == b.samples; };
  if (std::equal(points_.begin(), points_.end(), other.points_.begin(), other.points_.end(), same_samples)) {
    // The usual case, and sums over all nodes of a stage are made for every plan that a search looks at.
    SampleFunction total = *this;
    for (size_t i = 0; i < points_.size(); ++i) total.points_[i].value += other.points_[i].value;
    return total;
  }
  if (is_zero()) return other;
  if (other.is_zero()) return *this;
  std::vector<Point> sum = merged_points(*this, other);
  for (Point& point : sum) point.value = at(point.samples) + other.at(point.samples);
  return table(std::move(sum));
}

SampleFunction SampleFunction::larger(const SampleFunction& a, const SampleFunction& b) {
  if (a.is_zero()) return b;
  if (b.is_zero()) return a;
  if (!a.is_table() && !b.is_table())
    return polynomial(std::max(a.constant_, b.constant_), std::max(a.linear_, b.linear_),
                      std::max(a.quadratic_, b.quadratic_));
  std::vector<Point> points = merged_points(a, b);
  for (Point& point : points) point.value = std::max(a.at(point.samples), b.at(point.samples));
  return table(std::move(points));
}

}  // namespace graphpipe::ir
