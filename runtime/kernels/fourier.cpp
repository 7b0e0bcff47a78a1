#include "runtime/kernels/fourier.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/fft_fft.h>
#include <ATen/ops/fft_ifft.h>
#include <ATen/ops/fft_irfft.h>
#include <ATen/ops/fft_rfft.h>
#include <ATen/ops/real.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>

#include <vector>

namespace graphpipe::runtime {
namespace {

at::Tensor as_complex(const at::Tensor& x) {
  // Real and imaginary parts are interleaved.
  return x.size(-1) == 2 ? at::view_as_complex(x.contiguous()) : x.squeeze(-1);
}

/// The inverse of as_complex; spectra of real signals may be lazy conjugates, which are resolved first.
at::Tensor as_parts(const at::Tensor& x) { return at::view_as_real(x.resolve_conj()); }

/// Truncated to a size along an axis, or padded with zeros.
at::Tensor fitted(const at::Tensor& x, int64_t axis, int64_t size) {
  if (x.size(axis) >= size) return x.narrow(axis, 0, size);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[static_cast<size_t>(axis)] = size;
  at::Tensor result = x.new_zeros(sizes);
  result.narrow(axis, 0, x.size(axis)).copy_(x);
  return result;
}

/// The adjoint of a one-sided inverse: the frequencies that stand for two count twice.
at::Tensor onesided_spectrum_gradient(const at::Tensor& gradient, const FourierForm& form) {
  at::Tensor spectrum = at::fft_rfft(gradient.squeeze(-1), form.length, form.axis, "forward");
  const int64_t alone = form.length % 2 == 0 ? 2 : 1;
  spectrum.narrow(form.axis, 1, spectrum.size(form.axis) - alone).mul_(2);
  return spectrum;
}

}  // namespace

at::Tensor dft(const at::Tensor& x, const FourierForm& form) {
  if (form.onesided && form.inverse) return at::fft_irfft(as_complex(x), form.length, form.axis).unsqueeze(-1);
  if (form.onesided) return as_parts(at::fft_rfft(x.squeeze(-1), form.length, form.axis));
  const at::Tensor signal = as_complex(x);
  return as_parts(form.inverse ? at::fft_ifft(signal, form.length, form.axis)
                               : at::fft_fft(signal, form.length, form.axis));
}

at::Tensor dft_gradient(const at::Tensor& gradient, const FourierForm& form, int64_t size, int64_t parts) {
  if (form.onesided && form.inverse)
    return as_parts(fitted(onesided_spectrum_gradient(gradient, form), form.axis, size));
  // The adjoint of a transform is the opposite transform with the same factor, which is 1 or the division by the length
  // ("forward" divides the forward transform only).
  const at::Tensor spectrum = as_complex(gradient);
  const at::Tensor back = form.inverse ? at::fft_fft(spectrum, form.length, form.axis, "forward")
                                       : at::fft_ifft(spectrum, form.length, form.axis, "forward");
  const at::Tensor cut = fitted(back, form.axis, size);
  return parts == 1 ? at::real(cut).unsqueeze(-1) : as_parts(cut);
}

}  // namespace graphpipe::runtime
