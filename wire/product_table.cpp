#include "wire/product_table.h"

#include <algorithm>

#include "support/text.h"

namespace graphpipe::wire {
namespace {

constexpr std::string_view kProductsHeader = "graphpipe-products 1";
constexpr std::string_view kKernelNames[] = {"blas", "onednn"};

char letter(bool turned) { return turned ? 't' : 'n'; }

bool read_letter(std::string_view word, bool& turned) {
  turned = word == "t";
  return turned || word == "n";
}

bool read_size(std::string_view word, int64_t& size) { return read_number(word, size) && size > 0; }

bool parse_product(const std::vector<std::string_view>& words, TimedProduct& out) {
  Product& product = out.product;
  if ((words.size() != 6 && words.size() != 7) || words[0] != "product" || !read_size(words[1], product.rows) ||
      !read_size(words[2], product.inner) || !read_size(words[3], product.columns) ||
      !read_letter(words[4], product.left_turned) || !read_letter(words[5], product.right_turned))
    return false;
  if (words.size() == 6) return true;
  out.kernel = find_product_kernel(words[6]);
  return out.kernel.has_value();
}

}  // namespace

std::string_view product_kernel_name(ProductKernel kernel) { return kKernelNames[static_cast<size_t>(kernel)]; }

std::optional<ProductKernel> find_product_kernel(std::string_view name) {
  for (const ProductKernel kernel : {ProductKernel::kBlas, ProductKernel::kOneDnn})
    if (product_kernel_name(kernel) == name) return kernel;
  return std::nullopt;
}

std::string print_product_table(const ProductTable& table) {
  std::string out = text(kProductsHeader, "\nthreads ", table.threads, "\n");
  for (const auto& [product, kernel] : table.products)
    out += text("product ", product.rows, " ", product.inner, " ", product.columns, " ", letter(product.left_turned),
                " ", letter(product.right_turned), kernel ? text(" ", product_kernel_name(*kernel)) : "", "\n");
  return out;
}

std::optional<ProductTable> parse_product_table(std::string_view text) {
  const std::vector<std::string_view> lines = split(text, "\n");
  ProductTable table;
  if (lines.size() < 3 || lines[0] != kProductsHeader || !lines.back().empty()) return std::nullopt;
  const std::vector<std::string_view> threads = split(lines[1], " ");
  if (threads.size() != 2 || threads[0] != "threads" || !read_size(threads[1], table.threads)) return std::nullopt;
  for (size_t i = 2; i + 1 < lines.size(); ++i)
    if (!parse_product(split(lines[i], " "), table.products.emplace_back())) return std::nullopt;
  const auto after = [](const TimedProduct& a, const TimedProduct& b) { return a.product >= b.product; };
  if (std::ranges::adjacent_find(table.products, after) != table.products.end()) return std::nullopt;
  return table;
}

}  // namespace graphpipe::wire
