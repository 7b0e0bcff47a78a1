#pragma once
// Discrete Fourier transforms along one axis, in the form of ONNX's operator DFT
// (https://onnx.ai/onnx/operators/onnx__DFT.html): the last axis of a tensor holds the real and imaginary parts, or the
// real part alone.

#include <cstdint>

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// Parameters of a transform.
struct FourierForm {
  int64_t axis = 0;
  /// The length of the transform, to which the input is truncated or padded with zeros; the length of the result, if
  /// the spectrum is one-sided and the transform inverse.
  int64_t length = 0;
  bool inverse = false;
  /// The signal is real and its spectrum is held up to frequency length / 2.
  bool onesided = false;
};

/// The inverse transform is divided by its length.
at::Tensor dft(const at::Tensor& x, const FourierForm& form);
/// The gradient of an input with `size` elements along the axis and `parts` along the last axis.
at::Tensor dft_gradient(const at::Tensor& gradient, const FourierForm& form, int64_t size, int64_t parts);

}  // namespace graphpipe::runtime
