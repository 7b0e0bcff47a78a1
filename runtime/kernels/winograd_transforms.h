#pragma once
// The transforms of Winograd's method in one direction, F(2, 3) and F(4, 3), of eight tiles at a time. They evaluate
// polynomials at points and interpolate from there (Lavin & Gray, Fast Algorithms for Convolutional Neural Networks,
// CVPR 2016, which calls their matrices A, B and G). In both directions: of the columns of what rows became.

#include "runtime/kernels/vectors.h"

namespace graphpipe::runtime {

/// Of tiles of kTile results, made of kValues elements.
template <int kTile>
struct WinogradTransform;

/// At the points 0, 1, -1 and infinity.
template <>
struct WinogradTransform<2> {
  static constexpr int kValues = 4;

  /// B^T d of elements d.
  GRAPHPIPE_INLINE static void elements(const Vector8 (&d)[4], Vector8 (&values)[4]) {
    values[0] = d[0] - d[2];
    values[1] = d[1] + d[2];
    values[2] = d[2] - d[1];
    values[3] = d[1] - d[3];
  }
  /// A g of gradients g.
  GRAPHPIPE_INLINE static void gradients(const Vector8 (&g)[2], Vector8 (&values)[4]) {
    values[0] = g[0];
    values[1] = g[0] + g[1];
    values[2] = g[0] - g[1];
    values[3] = -g[1];
  }
  /// A^T m of products m.
  GRAPHPIPE_INLINE static void results(const Vector8 (&m)[4], Vector8 (&made)[2]) {
    made[0] = m[0] + m[1] + m[2];
    made[1] = m[1] - m[2] - m[3];
  }
  /// G w of weights w.
  GRAPHPIPE_INLINE static void weights(const Vector8 (&w)[3], Vector8 (&values)[4]) {
    const Vector8 outer = w[0] + w[2];
    values[0] = w[0];
    values[1] = 0.5F * (outer + w[1]);
    values[2] = 0.5F * (outer - w[1]);
    values[3] = w[2];
  }
  /// G^T m of products m.
  GRAPHPIPE_INLINE static void weight_gradients(const Vector8 (&m)[4], Vector8 (&made)[3]) {
    const Vector8 even = 0.5F * (m[1] + m[2]);
    made[0] = m[0] + even;
    made[1] = 0.5F * (m[1] - m[2]);
    made[2] = even + m[3];
  }
};

/// At the points 0, 5/8, -5/8, 3/2, -3/2 and infinity: rounding errors are half of those with 1 and 2.
template <>
struct WinogradTransform<4> {
  static constexpr int kValues = 6;
  static constexpr float kNear = 0.625F, kFar = 1.5F;
  static constexpr float kNear2 = kNear * kNear, kFar2 = kFar * kFar, kNear3 = kNear2 * kNear, kFar3 = kFar2 * kFar;
  // What the interpolation divides by, at each point.
  static constexpr float kOfZero = 1 / (kNear2 * kFar2);
  static constexpr float kOfNear = 1 / (2 * kNear2 * (kNear2 - kFar2)), kOfFar = 1 / (2 * kFar2 * (kFar2 - kNear2));

  /// A polynomial's values at the four points, of its even and its odd powers there.
  GRAPHPIPE_INLINE static void at_points(const Vector8& even_near, const Vector8& odd_near, const Vector8& even_far,
                                         const Vector8& odd_far, Vector8 (&values)[6]) {
    values[1] = even_near + odd_near;
    values[2] = even_near - odd_near;
    values[3] = even_far + odd_far;
    values[4] = even_far - odd_far;
  }

  GRAPHPIPE_INLINE static void elements(const Vector8 (&d)[6], Vector8 (&values)[6]) {
    constexpr float kProduct = kNear2 * kFar2, kSum = kNear2 + kFar2;
    const Vector8 even_near = d[4] - kFar2 * d[2], odd_near = kNear * (d[3] - kFar2 * d[1]);
    const Vector8 even_far = d[4] - kNear2 * d[2], odd_far = kFar * (d[3] - kNear2 * d[1]);
    values[0] = kProduct * d[0] - kSum * d[2] + d[4];
    at_points(even_near, odd_near, even_far, odd_far, values);
    values[5] = kProduct * d[1] - kSum * d[3] + d[5];
  }
  GRAPHPIPE_INLINE static void gradients(const Vector8 (&g)[4], Vector8 (&values)[6]) {
    const Vector8 even_near = g[0] + kNear2 * g[2], odd_near = kNear * g[1] + kNear3 * g[3];
    const Vector8 even_far = g[0] + kFar2 * g[2], odd_far = kFar * g[1] + kFar3 * g[3];
    values[0] = g[0];
    at_points(even_near, odd_near, even_far, odd_far, values);
    values[5] = g[3];
  }
  GRAPHPIPE_INLINE static void results(const Vector8 (&m)[6], Vector8 (&made)[4]) {
    const Vector8 even_near = m[1] + m[2], odd_near = m[1] - m[2];
    const Vector8 even_far = m[3] + m[4], odd_far = m[3] - m[4];
    made[0] = m[0] + even_near + even_far;
    made[1] = kNear * odd_near + kFar * odd_far;
    made[2] = kNear2 * even_near + kFar2 * even_far;
    made[3] = kNear3 * odd_near + kFar3 * odd_far + m[5];
  }
  GRAPHPIPE_INLINE static void weights(const Vector8 (&w)[3], Vector8 (&values)[6]) {
    const Vector8 even_near = kOfNear * w[0] + kOfNear * kNear2 * w[2], odd_near = kOfNear * kNear * w[1];
    const Vector8 even_far = kOfFar * w[0] + kOfFar * kFar2 * w[2], odd_far = kOfFar * kFar * w[1];
    values[0] = kOfZero * w[0];
    at_points(even_near, odd_near, even_far, odd_far, values);
    values[5] = w[2];
  }
  GRAPHPIPE_INLINE static void weight_gradients(const Vector8 (&m)[6], Vector8 (&made)[3]) {
    const Vector8 even_near = kOfNear * (m[1] + m[2]), odd_near = kOfNear * (m[1] - m[2]);
    const Vector8 even_far = kOfFar * (m[3] + m[4]), odd_far = kOfFar * (m[3] - m[4]);
    made[0] = kOfZero * m[0] + even_near + even_far;
    made[1] = kNear * odd_near + kFar * odd_far;
    made[2] = kNear2 * even_near + kFar2 * even_far + m[5];
  }
};

/// The transform `kTransform` of the rows of `from`, and of the columns of what they become.
template <auto kTransform, int kFrom, int kTo>
GRAPHPIPE_INLINE void transform_both_ways(const Vector8 (&from)[kFrom][kFrom], Vector8 (&to)[kTo][kTo]) {
  Vector8 across[kFrom][kTo];
  for (int row = 0; row < kFrom; ++row) kTransform(from[row], across[row]);
  for (int column = 0; column < kTo; ++column) {
    Vector8 down[kFrom], made[kTo];
    for (int row = 0; row < kFrom; ++row) down[row] = across[row][column];
    kTransform(down, made);
    for (int row = 0; row < kTo; ++row) to[row][column] = made[row];
  }
}

}  // namespace graphpipe::runtime
