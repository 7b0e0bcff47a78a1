#pragma once
// The matrix products and convolutions of a plan's programs, and which kernel was the fastest for each on the machine
// that built them.
//
// `generate` writes the products beside the programs (products.txt), `build` measures them (kernels.txt), and every
// program of the plan takes what stands there, so that all of them compute the same bits. Text form, one product per
// line: rows, inner, columns, how each operand lies in memory (n: by rows, t: transposed), and once it is measured the
// kernel; then the convolutions: pass, samples, channels, results, height, width, pads above and beside, kernel:
//
//   graphpipe-products 3
//   threads 1
//   product 512 768 3072 n t onednn
//   convolution forward 8 64 64 16 16 1 1 winograd-4x4

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wire/convolution.h"

namespace graphpipe::wire {

inline constexpr std::string_view kProductsFile = "products.txt", kKernelsFile = "kernels.txt";

/// [rows, inner] times [inner, columns].
struct Product {
  int64_t rows = 0, inner = 0, columns = 0;
  bool left_turned = false, right_turned = false;
  auto operator<=>(const Product&) const = default;
};

/// The BLAS of LibTorch's build, oneDNN, which is part of the same LibTorch, or our own loops over packed operands.
enum class ProductKernel : uint8_t { kBlas, kOneDnn, kPacked };

/// Of convolutions that fit Winograd's method: that with tiles of 2x2 or 4x4 results, or what computes all others
/// (wire/convolution.h).
enum class ConvolutionKernel : uint8_t { kDirect, kWinograd2, kWinograd4 };

/// Results of a tile in either direction. Needs: by Winograd's method.
constexpr int64_t winograd_tile(ConvolutionKernel kernel) { return kernel == ConvolutionKernel::kWinograd2 ? 2 : 4; }
/// Whether the kernel may compute it.
inline bool fits_kernel(const Convolution& of, ConvolutionKernel kernel) {
  return kernel == ConvolutionKernel::kDirect || fits_winograd(of, winograd_tile(kernel));
}

template <typename Work, typename Kernel>
struct Timed {
  Work work;
  /// Absent: not measured.
  std::optional<Kernel> kernel = std::nullopt;
  bool operator==(const Timed&) const = default;
};
using TimedProduct = Timed<Product, ProductKernel>;
using TimedConvolution = Timed<Convolution, ConvolutionKernel>;

struct ProductTable {
  int64_t threads = 1;
  /// Ascending, each once.
  std::vector<TimedProduct> products;
  std::vector<TimedConvolution> convolutions;
  bool operator==(const ProductTable&) const = default;
};

std::string print_product_table(const ProductTable& table);
/// Absent where the text is not of this form, or names a kernel that may not compute its convolution: `problem` then
/// says in which line.
std::optional<ProductTable> parse_product_table(std::string_view text, std::string& problem);
std::optional<ProductTable> parse_product_table(std::string_view text);

/// Below, the choice is not worth a measurement: what surrounds a kernel costs as much.
inline constexpr int64_t kFewMultiplications = 1 << 20;
constexpr bool is_worth_measuring(const Product& product) {
  return product.rows * product.inner * product.columns >= kFewMultiplications;
}
inline bool is_worth_measuring(const Convolution& of) {
  const double products = 9.0 * static_cast<double>(of.channels) * static_cast<double>(of.results);
  return products * static_cast<double>(of.samples * of.result_height() * of.result_width()) >= kFewMultiplications;
}

}  // namespace graphpipe::wire
