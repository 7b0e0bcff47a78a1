#pragma once
// The loops of batch_norm.h over floats: sums over the elements of channels, and what follows from them for each
// element. [N, C, ..] is, of each channel, N lines of contiguous elements. Narrow lines, down to the single elements of
// BatchNorm behind fully connected layers, are passed over as columns of several channels, so that vectors are full.

#include <cstdint>

namespace graphpipe::runtime {

struct ChannelShape {
  int64_t samples = 0, channels = 0, width = 0;  // of a line
  int64_t line(int64_t sample, int64_t channel) const { return (sample * channels + channel) * width; }
  int64_t count() const { return samples * width; }
};

struct BatchNormForward {
  ChannelShape shape;
  const float *x, *scale, *bias;
  float *result, *mean, *inverse_deviation;
  double* squares;  // of differences from the mean, summed
  double epsilon;
};

struct BatchNormBackward {
  ChannelShape shape;
  const float *gradient, *x, *scale, *mean, *inverse_deviation;
  double *sums, *products;           // of the gradient, and of it times x - mean(x)
  float *of_x, *of_scale, *of_bias;  // null if not wanted
};

/// Neighbouring channels.
struct Channels {
  int64_t first = 0, count = 0;
};

/// How many channels are passed over together: as many in every call, but for the last ones.
int64_t channels_together(const ChannelShape& shape);

/// Each of at most channels_together() channels.
struct BatchNormLoops {
  /// The means and the squares.
  void (*measure)(const BatchNormForward&, Channels);
  /// The results and deviations, where of `count` values the means and the squares are those.
  void (*normalize)(const BatchNormForward&, Channels, double count);
  /// The sums and products, and the gradients of scale and bias that are made of them.
  void (*sum_gradients)(const BatchNormBackward&, Channels);
  /// The gradient of x, where of `count` values the sums and products are those.
  void (*gradient_of_x)(const BatchNormBackward&, Channels, double count);
};
/// Those for this processor.
const BatchNormLoops& batch_norm_loops();

}  // namespace graphpipe::runtime
