#pragma once
// Discrete Fourier transforms of one axis, in the form of ONNX's operator DFT
// (https://onnx.ai/onnx/operators/onnx__DFT.html): the last axis of a tensor holds the real and the imaginary part, or
// the real part alone.

#include <cstdint>

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// What is transformed and into what.
struct FourierForm {
  int64_t axis = 0;
  /// Of the transform; the input is cut to it, or followed by zeros. Of the result, where the spectrum is one-sided and
  /// the transform inverse.
  int64_t length = 0;
  bool inverse = false;
  /// A real signal whose spectrum is held up to frequency length / 2.
  bool onesided = false;
};

/// The inverse transform is divided by its length.
at::Tensor dft(const at::Tensor& x, const FourierForm& form);
/// The gradient of an input with `size` elements along the axis and `parts` along the last axis.
at::Tensor dft_gradient(const at::Tensor& gradient, const FourierForm& form, int64_t size, int64_t parts);

}  // namespace graphpipe::runtime
