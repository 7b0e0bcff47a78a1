#include "runtime/kernels/region.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace graphpipe::runtime {
namespace {

/// One of the four cells around a point, and its weight.
template <typename T>
struct Corner {
  int64_t cell = 0;
  T weight = 0;
};

/// The points of a region's bins, row by row; those of a bin are contiguous, four corners each.
template <typename T>
struct Points {
  int64_t sample = 0;
  int64_t in_bin = 0;
  std::vector<Corner<T>> corners;
};

/// The two cells around a position on an axis, and the weight of the second. More than one cell outside the axis: none.
template <typename T>
struct Between {
  int64_t low = 0, high = 0;
  T share = 0;
  bool outside = false;
};

template <typename T>
Between<T> between(T position, int64_t size) {
  if (!(position >= -1 && position <= static_cast<T>(size))) return {.outside = true};
  position = std::max(position, T{0});
  const auto low = static_cast<int64_t>(position);
  if (low >= size - 1) return {.low = size - 1, .high = size - 1};
  return {.low = low, .high = low + 1, .share = position - static_cast<T>(low)};
}

/// Per axis, and per region: the points of all regions are in memory at once.
constexpr int64_t kMaxPoints = int64_t{1} << 22;

/// One axis of a region: where its points lie.
template <typename T>
std::vector<Between<T>> along(T begin, T end, int64_t bins, int64_t size, const RegionForm& form) {
  const T length = form.half_pixel ? end - begin : std::max(end - begin, T{1});
  const T bin = length / static_cast<T>(bins);
  const int64_t points = form.points > 0 ? form.points : std::max<int64_t>(0, static_cast<int64_t>(std::ceil(bin)));
  TORCH_CHECK(points <= kMaxPoints / std::max<int64_t>(1, bins), "RoiAlign: a region reaches over ", length,
              " cells of an axis, at each of which it would read; give a sampling_ratio, or keep regions on the map");
  std::vector<Between<T>> result;
  for (int64_t i = 0; i < bins; ++i)
    for (int64_t k = 0; k < points; ++k)
      result.push_back(
          between(begin + static_cast<T>(i) * bin + (static_cast<T>(k) + T{0.5}) * bin / static_cast<T>(points), size));
  return result;
}

template <typename T>
class Regions {
 public:
  Regions(const at::Tensor& x, const at::Tensor& regions, const at::Tensor& samples, const RegionForm& form)
      : form_(form), channels_(x.size(1)), height_(x.size(2)), width_(x.size(3)) {
    const at::Tensor rows = regions.to(at::kCPU, x.scalar_type()).contiguous();
    const at::Tensor numbers = form.per_sample > 0 ? at::Tensor() : samples.to(at::kCPU, at::kLong).contiguous();
    for (int64_t r = 0; r < rows.size(0); ++r) {
      const int64_t sample = form.per_sample > 0 ? r / form.per_sample : numbers.const_data_ptr<int64_t>()[r];
      TORCH_CHECK_INDEX(sample >= 0 && sample < x.size(0), "RoiAlign: region ", r, " is of sample ", sample, " of ",
                        x.size(0));
      regions_.push_back(points_of(rows.const_data_ptr<T>() + 4 * r, sample));
    }
  }

  int64_t count() const { return static_cast<int64_t>(regions_.size()); }
  /// The value of each bin of a region from one of its planes.
  void read(int64_t region, const T* plane, T* bins) const {
    const Points<T>& points = regions_[static_cast<size_t>(region)];
    for (int64_t bin = 0; bin < form_.height * form_.width; ++bin) {
      const Corner<T>* const first = points.corners.data() + bin * points.in_bin * 4;
      if (form_.maximum) {
        const Corner<T>* const largest = largest_of(first, points.in_bin * 4, plane);
        bins[bin] = largest == nullptr ? T{0} : largest->weight * plane[largest->cell];
        continue;
      }
      T sum = 0;
      for (int64_t i = 0; i < points.in_bin * 4; ++i) sum += first[i].weight * plane[first[i].cell];
      bins[bin] = sum / static_cast<T>(std::max<int64_t>(1, points.in_bin));
    }
  }
  /// Adds the gradient of the plane that follows from the bins' gradients.
  void add_gradient(int64_t region, const T* plane, const T* gradient, T* sum) const {
    const Points<T>& points = regions_[static_cast<size_t>(region)];
    for (int64_t bin = 0; bin < form_.height * form_.width; ++bin) {
      const Corner<T>* const first = points.corners.data() + bin * points.in_bin * 4;
      if (form_.maximum) {
        const Corner<T>* const largest = largest_of(first, points.in_bin * 4, plane);
        if (largest != nullptr) sum[largest->cell] += largest->weight * gradient[bin];
        continue;
      }
      const T share = gradient[bin] / static_cast<T>(std::max<int64_t>(1, points.in_bin));
      for (int64_t i = 0; i < points.in_bin * 4; ++i) sum[first[i].cell] += first[i].weight * share;
    }
  }
  int64_t sample(int64_t region) const { return regions_[static_cast<size_t>(region)].sample; }

 private:
  Points<T> points_of(const T* corners, int64_t sample) const {
    std::array<T, 4> at{};
    for (size_t i = 0; i < 4; ++i) {
      at[i] = corners[i] * static_cast<T>(form_.scale) - (form_.half_pixel ? T{0.5} : T{0});
      TORCH_CHECK(std::abs(at[i]) < T{1e6}, "RoiAlign: a corner of a region is ", corners[i]);
    }
    const std::vector<Between<T>> rows = along(at[1], at[3], form_.height, height_, form_),
                                  columns = along(at[0], at[2], form_.width, width_, form_);
    const int64_t down = static_cast<int64_t>(rows.size()) / form_.height,
                  right = static_cast<int64_t>(columns.size()) / form_.width;
    TORCH_CHECK(rows.empty() || std::ssize(columns) <= kMaxPoints / std::ssize(rows),
                "RoiAlign: a region reaches over ", at[2] - at[0], " by ", at[3] - at[1],
                " cells, each of which it would read; give a sampling_ratio, or keep regions on the map");
    Points<T> points{.sample = sample, .in_bin = down * right, .corners = {}};
    points.corners.reserve(rows.size() * columns.size() * 4);
    for (int64_t y = 0; y < form_.height; ++y)
      for (int64_t x = 0; x < form_.width; ++x)
        for (int64_t i = 0; i < down; ++i)
          for (int64_t k = 0; k < right; ++k)
            add_point(rows[static_cast<size_t>(y * down + i)], columns[static_cast<size_t>(x * right + k)], points);
    return points;
  }

  void add_point(const Between<T>& row, const Between<T>& column, Points<T>& points) const {
    if (row.outside || column.outside) return points.corners.insert(points.corners.end(), 4, {}), void();
    const T low = 1 - row.share, left = 1 - column.share;
    points.corners.push_back({row.low * width_ + column.low, low * left});
    points.corners.push_back({row.low * width_ + column.high, low * column.share});
    points.corners.push_back({row.high * width_ + column.low, row.share * left});
    points.corners.push_back({row.high * width_ + column.high, row.share * column.share});
  }

  /// The corner with the largest product of weight and value, the first if several are equal; null if there is none.
  static const Corner<T>* largest_of(const Corner<T>* first, int64_t count, const T* plane) {
    const Corner<T>* largest = count > 0 ? first : nullptr;
    for (int64_t i = 1; i < count; ++i)
      if (first[i].weight * plane[first[i].cell] > largest->weight * plane[largest->cell]) largest = first + i;
    return largest;
  }

  const RegionForm& form_;
  int64_t channels_, height_, width_;
  std::vector<Points<T>> regions_;
};

/// Calls `function` with a value of the type that is used for the computation.
template <typename Function>
void in_type(at::ScalarType type, const Function& function) {
  if (type == at::kDouble) function(double{});
  else function(float{});
}

at::ScalarType computed_type(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

}  // namespace

at::Tensor region_values(const at::Tensor& x, const at::Tensor& regions, const at::Tensor& samples,
                         const RegionForm& form) {
  const at::Tensor planes = x.to(at::kCPU, computed_type(x)).contiguous();
  at::Tensor result = at::empty({regions.size(0), x.size(1), form.height, form.width}, planes.options());
  in_type(planes.scalar_type(), [&](auto number) {
    using T = decltype(number);
    const Regions<T> all(planes, regions, samples, form);
    const int64_t channels = x.size(1), cells = x.size(2) * x.size(3), bins = form.height * form.width;
    at::parallel_for(0, all.count() * channels, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t plane = all.sample(i / channels) * channels + i % channels;
        all.read(i / channels, planes.const_data_ptr<T>() + plane * cells, result.mutable_data_ptr<T>() + i * bins);
      }
    });
  });
  return result.to(x.options());
}

at::Tensor region_values_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& regions,
                                  const at::Tensor& samples, const RegionForm& form) {
  const at::Tensor planes = x.to(at::kCPU, computed_type(x)).contiguous();
  const at::Tensor given = gradient.to(planes.options()).contiguous();
  at::Tensor result = at::zeros(planes.sizes(), planes.options());
  in_type(planes.scalar_type(), [&](auto number) {
    using T = decltype(number);
    const Regions<T> all(planes, regions, samples, form);
    const int64_t channels = x.size(1), cells = x.size(2) * x.size(3), bins = form.height * form.width;
    // Regions overlap, channels do not: each channel belongs to one thread, so sums have one order.
    at::parallel_for(0, channels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t region = 0; region < all.count(); ++region)
        for (int64_t channel = begin; channel < end; ++channel) {
          const int64_t plane = (all.sample(region) * channels + channel) * cells;
          all.add_gradient(region, planes.const_data_ptr<T>() + plane,
                           given.const_data_ptr<T>() + (region * channels + channel) * bins,
                           result.mutable_data_ptr<T>() + plane);
        }
    });
  });
  return result.to(x.options());
}

}  // namespace graphpipe::runtime
