#pragma once
// The loops of batch_norm.h over floats or, by their bits, over bfloat16 (Element: float, uint16_t): sums over the
// elements of channels, and what follows from them for each element. [N, C, ..] is, of each channel, N lines of
// contiguous elements. Narrow lines, down to the single elements of BatchNorm behind fully connected layers, are passed
// over as columns of several channels, so that vectors are full.

#include <cstdint>

namespace graphpipe::runtime {

struct ChannelShape {
  int64_t samples = 0, channels = 0, width = 0;  // of a line
  int64_t line(int64_t sample, int64_t channel) const { return (sample * channels + channel) * width; }
  int64_t count() const { return samples * width; }
};

template <typename Element>
struct BatchNormForward {
  ChannelShape shape;
  const Element* x;
  Element* result;
  const float *scale, *bias;
  float *mean, *inverse_deviation;
  double* squares;  // of differences from the mean, summed
  double epsilon;
};

template <typename Element>
struct BatchNormBackward {
  ChannelShape shape;
  const Element *gradient, *x;
  const float *scale, *mean, *inverse_deviation;
  double *sums, *products;  // of the gradient, and of it times x - mean(x)
  Element* of_x;            // null if not wanted, as the others
  float *of_scale, *of_bias;
};

/// Neighbouring channels.
struct Channels {
  int64_t first = 0, count = 0;
};

/// How many channels are passed over together: as many in every call, but for the last ones.
int64_t channels_together(const ChannelShape& shape);

/// Each of at most channels_together() channels.
template <typename Element>
struct BatchNormLoops {
  /// The means and the squares.
  void (*measure)(const BatchNormForward<Element>&, Channels);
  /// The results and deviations, where of `count` values the means and the squares are those.
  void (*normalize)(const BatchNormForward<Element>&, Channels, double count);
  /// The sums and products, and the gradients of scale and bias that are made of them.
  void (*sum_gradients)(const BatchNormBackward<Element>&, Channels);
  /// The gradient of x, where of `count` values the sums and products are those.
  void (*gradient_of_x)(const BatchNormBackward<Element>&, Channels, double count);
};
/// Those for this processor.
template <typename Element>
const BatchNormLoops<Element>& batch_norm_loops();

}  // namespace graphpipe::runtime
